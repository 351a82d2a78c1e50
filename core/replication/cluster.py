"""This broker among its peers: it follows, leads, promises epochs, and becomes leader when an operator asks.

Three kinds of tasks run here, next to the requests of the listeners:

    a follower per peer        copies the partitions that the peer leads (`core.replication.follower`)
    a conversation per peer    tells the peer which partitions this broker has begun to lead, until the peer follows;
                               asks it about partitions whose leader this broker does not know
    a timer                    takes slow followers out of the in-sync sets

With every question and answer a broker sends the address that its clients use. The peers store it, so that they
know it while that broker is away.

A promotion (`promote`) has five steps. It asks all replicas for their state. It asks the leader to pause until
this broker has caught up. It takes a new epoch. It asks the other replicas to promise the epoch. Then this broker
leads. It is refused if a committed record could get lost, unless the operator asks for an unclean one.

There is no automatic election, with one exception: a leader that was restarted leads again, in a new epoch, when a
majority of the replicas has answered and none of them knows of another leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from core.changes import TopicChanges
from core.clock import Clock
from core.config import Config, Endpoint, Peer
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.log.manager import LogManager
from core.metadata.store import Store
from core.metadata.topics import put_setting
from core.replication.copies import Copy, Flushing
from core.replication.epochs import leader_of, next_epoch
from core.replication.follower import Follower
from core.replication.peer import PeerConnection, PeerError
from core.replication.peer_protocol import (
    MAX_ITEMS,
    Answer,
    Item,
    Kind,
    Question,
    State,
    decode_question,
    encode,
)
from core.replication.replica import Remembered, Standing, better_than, needed_answers
from core.replication.replicas import Replicas
from core.types import TopicPartition
from core.vocabulary.replicas import METADATA

logger = logging.getLogger(__name__)

# How long a leader pauses for another one to take over, and how long that one waits to catch up.
PAUSE_SECONDS = 3.0
_CAUGHT_UP_POLL = 0.005
# Answers older than that say nothing of now.
_FRESH_SECONDS = 3.0
# The setting that holds the advertised address of a peer, by its id: each broker's own.
_ADVERTISED = "local.advertised."
# Promotions of one command that are under way at once.
_AT_ONCE = 50


class Cluster:
    """The peers of one broker. `open` and `start` it once the logs are open; everything runs on the event loop.

    `before_cut` and `role_changed` are about the metadata partition: it will be cut at an offset; its role or its
    high watermark has changed. `before_lead` is about any partition: this broker is about to lead it, and its log
    ends at the offset.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        store: Store,
        logs: LogManager,
        replicas: Replicas,
        flusher: Flushing,
        changes: TopicChanges,
        *,
        before_cut: Callable[[int], Awaitable[None]],
        before_lead: Callable[[TopicPartition, int], Awaitable[None]],
        role_changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._logs = logs
        self._replicas = replicas
        self._flusher = flusher
        self._changes = changes
        self._before_cut, self._before_lead, self._role_changed = before_cut, before_lead, role_changed
        self.peers: dict[int, Peer] = {peer.broker_id: peer for peer in self._config.peers}
        self._connections = {i: PeerConnection(peer, self._config) for i, peer in self.peers.items()}
        self._followers = {i: Follower(peer, self._config, clock, self) for i, peer in self.peers.items()}
        self._news = {i: asyncio.Event() for i in self.peers}
        # Per partition and peer: when it answered a question last, and what.
        self._heard: dict[Copy, dict[int, tuple[float, State]]] = {}
        self._promoting: set[Copy] = set()
        # "host port" that each peer wants its clients to use; without it, they use the address of `--peer`.
        self._advertised = dict.fromkeys(self.peers, "")
        # Peers that have been told this broker's own address since it was started.
        self._introduced: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, settings: Mapping[str, str]) -> None:
        """Take the addresses that the peers had in the last run."""
        self._advertised = {i: settings.get(f"{_ADVERTISED}{i}", "") for i in self.peers}

    def start(self) -> None:
        """Begin to talk to the peers."""
        for i in self.peers:
            self._spawn(self._followers[i].run())
            self._spawn(self._converse(i))
            self._news[i].set()
        self._spawn(self._rhythm())

    async def close(self) -> None:
        """End all of it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def changed(self, copy: Copy) -> None:
        """Tell the other parts of this broker that its role for a partition has changed."""
        self._replicas.note(copy)
        self._changes.answers_changed()
        self._heard.pop(copy, None)
        if copy.tp == METADATA:
            self._role_changed()
        self.wake()

    def wake(self) -> None:
        """There may be something to follow, or to say."""
        for i in self.peers:
            self._followers[i].wake()
            self._news[i].set()

    def address(self, peer: int) -> Endpoint:
        """Where the clients of a peer connect to it: what it advertises, or its address for other brokers."""
        host, _, port = self._advertised[peer].rpartition(" ")
        if not host:
            return Endpoint("kafka", self.peers[peer].host, self.peers[peer].port)
        return Endpoint("kafka", host, int(port))

    async def forward(self, peer: int, key: int, version: int, request: Any) -> Any:
        """The response of a peer to a request of the Kafka protocol. Raises NOT_LEADER_OR_FOLLOWER."""
        try:
            return await self._connections[peer].request(key, version, request)
        except PeerError as error:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from None

    async def _note_address(self, peer: int, host: str, port: int) -> None:
        told = f"{host} {port}" if host else ""
        if self._advertised[peer] != told:
            self._advertised[peer] = told
            self._changes.answers_changed()
            logger.info("broker %d advertises %s", peer, self.address(peer))
            await self._store.submit([put_setting(f"{_ADVERTISED}{peer}", told)], local=True)

    # --- what followers need (Keeper) ------------------------------------------------------------------------

    def followed(self, leader: int) -> Sequence[Copy]:
        """See `Keeper.followed`."""
        return [c for c in self._replicas if c.replica.follows and leader_of(c.replica.epoch) == leader]

    async def flush(self, log: Log) -> None:
        """See `Keeper.flush`."""
        waiting = self._flusher.durable(log, log.offsets.log_end_offset)
        if waiting is not None:
            await waiting

    async def cut(self, copy: Copy, offset: int) -> None:
        """See `Keeper.cut`."""
        if copy.tp == METADATA:
            await self._before_cut(offset)
        log = copy.log
        await self._lower_recovery_point(log, offset)
        end = log.truncate_to(offset)
        copy.replica.cut(end)
        log.visible = copy.replica.high_watermark

    async def start_at(self, copy: Copy, offset: int) -> None:
        """See `Keeper.start_at`."""
        log = copy.log
        await self._lower_recovery_point(log, log.offsets.log_start_offset)
        log.start_at(offset)

    async def _lower_recovery_point(self, log: Log, offset: int) -> None:
        """Step 0 of a cut (`core.log.truncation`). Raises KAFKA_STORAGE_ERROR."""
        log.begin_cut(offset)
        task = self._logs.begin_checkpoint()
        try:
            await asyncio.get_running_loop().run_in_executor(None, task.run)
        except OSError as error:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The recovery point could not be stored ({error.strerror})."
            ) from error

    async def remember(self, copies: Sequence[Copy]) -> None:
        """See `Keeper.remember`."""
        for copy in copies:
            self._replicas.note(copy)
        await self._save()

    def moved(self, copy: Copy) -> None:
        """See `Keeper.moved`."""
        self._replicas.moved(copy)

    def disowned(self, copy: Copy, leader: int) -> None:
        """See `Keeper.disowned`: from here on the other brokers are asked for the leader."""
        if copy.replica.follows and leader_of(copy.replica.epoch) == leader:
            copy.replica.active = False
            self._heard.pop(copy, None)

    async def _save(self) -> None:
        assert self._replicas.promises is not None
        await self._replicas.promises.save()

    # --- being asked -----------------------------------------------------------------------------------------

    async def answer(self, data: bytes, asked_by: int | None = None) -> bytes:
        """Answer a question of a peer. ValueError if it is none. What it promises is on the disk by then.

        Raises CLUSTER_AUTHORIZATION_FAILED if it names another broker than `asked_by`, which is proven.
        """
        question = decode_question(data)
        if asked_by not in (None, question.broker_id):
            raise BrokerError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"Broker {asked_by} asks in the name of broker {question.broker_id}.",
            )
        if question.broker_id not in self.peers:
            raise ValueError(f"broker {question.broker_id} is not one of the peers")
        await self._note_address(question.broker_id, question.host, question.port)
        found = [self._replicas.by_id(item.topic_id, item.partition) for item in question.items]
        granted = [
            copy is not None and self._grant(question.kind, copy, item)
            for copy, item in zip(found, question.items, strict=True)
        ]
        await self._save()
        states = [
            self._state_of(copy, yes) if copy is not None else State()
            for copy, yes in zip(found, granted, strict=True)
        ]
        return encode(Answer(self._config.broker_id, states, *self._own_address()))

    def _grant(self, kind: Kind, copy: Copy, item: Item) -> bool:
        replica = copy.replica
        if kind is Kind.PAUSE and replica.leads:
            replica.paused_until = self._clock.monotonic() + PAUSE_SECONDS
        elif kind is Kind.VOTE:
            if replica.promise(item.epoch):
                logger.info("%s: epoch %d is promised", copy.tp, item.epoch)
                self._replicas.deposed(copy)
                self.changed(copy)
            return replica.epoch == item.epoch and not replica.active
        elif kind is Kind.BEGIN:
            led, before = replica.leads, (replica.epoch, replica.active)
            if item.start < 0 or not replica.follow(item.epoch, item.start):
                return False
            if led:
                self._replicas.deposed(copy)
            if before != (replica.epoch, True):
                self.changed(copy)
            return True
        return kind is Kind.ASK or kind is Kind.PAUSE

    def _state_of(self, copy: Copy, granted: bool) -> State:
        replica = copy.replica
        end = copy.log.offsets.log_end_offset
        return State(True, replica.epoch, replica.complete, end, replica.start, replica.source, granted)

    def note_newer_epoch(self, copy: Copy, epoch: int) -> None:
        """Note a newer epoch that another broker knows: this broker does not lead in it."""
        if copy.replica.promise(epoch):
            logger.warning(
                "%s: broker %d has epoch %d; this broker steps back",
                copy.tp, leader_of(epoch), epoch,
            )  # fmt: skip
            self._replicas.deposed(copy)
            self.changed(copy)

    # --- asking ----------------------------------------------------------------------------------------------

    async def _ask(self, peer: int, kind: Kind, items: Sequence[tuple[Copy, int, int]]) -> dict[Copy, State]:
        """Ask one peer about some partitions. Raises PeerError."""
        question = Question(
            kind,
            self._config.broker_id,
            [Item(c.topic_id.bytes, c.tp.partition, epoch, start) for c, epoch, start in items],
            *self._own_address(),
        )
        answer = await self._connections[peer].exchange(question)
        await self._note_address(peer, answer.host, answer.port)
        states = zip((copy for copy, _, _ in items), answer.states, strict=False)
        return {copy: state for copy, state in states if state.known}

    def _own_address(self) -> tuple[str, int]:
        own = self._config.advertised
        if own is None and self._config.peer_listener is not None:
            # The address in `--peer` is not for clients.
            kafka = next((one for one in self._config.listeners if one.scheme == "kafka"), None)
            own = (kafka.advertised or kafka) if kafka is not None else None
        return (own.host, own.port) if own is not None else ("", 0)

    async def _converse(self, peer: int) -> None:
        pause = self._config.replica_retry_ms / 1000
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._news[peer].wait()
            except TimeoutError:
                pass
            self._news[peer].clear()
            try:
                if peer not in self._introduced:
                    await self._ask(peer, Kind.ASK, [])
                    self._introduced.add(peer)
                await self._tell(peer)
                await self._find_leaders(peer)
            except PeerError as error:
                logger.debug("%s", error)
            except Exception:
                logger.exception("talking to broker %d", peer)

    async def _tell(self, peer: int) -> None:
        """Say which partitions this broker leads, to a replica that does not fetch them, or not any more: it may know
        of a newer leader."""
        now = self._clock.monotonic()
        news = [
            (copy, copy.replica.epoch, copy.replica.start)
            for copy in self._replicas
            if copy.replica.leads
            and (progress := copy.replica.followers.get(peer)) is not None
            and (not progress.heard or now - progress.asked_at > copy.replica.lag)
        ]
        for start in range(0, len(news), MAX_ITEMS):
            for copy, state in (await self._ask(peer, Kind.BEGIN, news[start : start + MAX_ITEMS])).items():
                if state.epoch > copy.replica.epoch:
                    self.note_newer_epoch(copy, state.epoch)

    async def _find_leaders(self, peer: int) -> None:
        """Ask the peers about partitions whose leader is unknown."""
        open_ = [
            (copy, -1, -1)
            for copy in self._replicas
            if not copy.replica.active and peer in copy.replica.replicas and copy not in self._promoting
        ]
        for start in range(0, len(open_), MAX_ITEMS):
            found = await self._ask(peer, Kind.ASK, open_[start : start + MAX_ITEMS])
            now = self._clock.monotonic()
            followed = False
            for copy, state in found.items():
                replica = copy.replica
                if replica.active or copy in self._promoting:
                    continue
                if state.epoch > replica.epoch:
                    self.note_newer_epoch(copy, state.epoch)
                if state.leads and state.epoch == replica.epoch and replica.follow(state.epoch, state.start):
                    self.changed(copy)
                    followed = True
                    continue
                self._heard.setdefault(copy, {})[peer] = (now, state)
                if leader_of(replica.epoch) == self._config.broker_id and not replica.resigned:
                    self._lead_again(copy, now)
            if followed:
                await self._save()

    def _lead_again(self, copy: Copy, now: float) -> None:
        """Lead again after a restart, in a new epoch, if no replica knows of another leader."""
        fresh = {
            peer: state
            for peer, (at, state) in self._heard.get(copy, {}).items()
            if now - at <= _FRESH_SECONDS
        }
        count = len(copy.replica.replicas)
        if 1 + len(fresh) < max(count // 2 + 1, needed_answers(count, self._replicas.needed(copy))):
            return
        if self._better(copy, fresh) is None:
            self._spawn(self._lead_again_now(copy))

    async def _lead_again_now(self, copy: Copy) -> None:
        try:
            await self.promote(copy, again=True)
        except BrokerError as error:
            logger.warning("%s: %s", copy.tp, error.message)

    async def _rhythm(self) -> None:
        while True:
            await asyncio.sleep(self._config.replica_retry_ms / 1000)
            self._replicas.expire()

    # --- promotion -------------------------------------------------------------------------------------------

    async def promote_all(self, copies: Iterable[Copy], *, unclean: bool) -> dict[Copy, BrokerError | None]:
        """Promote this broker for many partitions: what became of each."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(copy: Copy) -> BrokerError | None:
            async with limit:
                try:
                    await self.promote(copy, unclean=unclean)
                except BrokerError as error:
                    return error
                return None

        wanted = list(copies)
        return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))

    async def promote(self, copy: Copy, *, unclean: bool = False, again: bool = False) -> None:
        """Let this broker lead the partition, in a new epoch. Nothing changes if it leads already.

        Raises ELIGIBLE_LEADERS_NOT_AVAILABLE if a committed record could get lost, KAFKA_STORAGE_ERROR.
        `again`: the broker leads again after a restart; no leader is asked to pause.
        """
        if copy in self._promoting:
            raise BrokerError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"A promotion of {copy.tp} is under way.",
            )
        replica = copy.replica
        if replica.leads:
            return
        self._promoting.add(copy)
        try:
            await self._promote(copy, unclean, again)
        finally:
            self._promoting.discard(copy)
        logger.warning(
            "%s: this broker leads in epoch %d from offset %d on",
            copy.tp, replica.epoch, replica.start,
        )  # fmt: skip

    async def _promote(self, copy: Copy, unclean: bool, again: bool) -> None:
        replica, broker_id = copy.replica, self._config.broker_id
        if replica.resigned and leader_of(replica.epoch) == broker_id:
            again = True  # no other broker leads
        states = await self._ask_all(copy, Kind.ASK if again else Kind.PAUSE)
        await self._catch_up(copy, states)
        end = copy.log.offsets.log_end_offset
        self._check(copy, {p: s for p, s in states.items() if not s.leads or s.end > end}, states, unclean)
        epoch = next_epoch(max([replica.epoch, *(s.epoch for s in states.values())]), broker_id)
        replica.promise(epoch)
        self._replicas.deposed(copy)
        self.changed(copy)
        await self._save()
        votes = await self._ask_all(copy, Kind.VOTE, epoch)
        newer = max([s.epoch for s in votes.values()], default=-1)
        if newer > epoch:
            self.note_newer_epoch(copy, newer)
        granted = {p: s for p, s in votes.items() if s.granted}
        self._check(copy, granted, granted, unclean)
        end = copy.log.offsets.log_end_offset
        await self._before_lead(copy.tp, end)
        assert self._replicas.promises is not None
        self._replicas.promises.note(copy.tp, copy.topic_id, Remembered(epoch, epoch, end))
        await self._save()
        if replica.epoch != epoch:
            raise self._refused(copy, f"epoch {replica.epoch} was taken meanwhile")
        replica.lead(end, self._clock.monotonic())
        self.changed(copy)
        self._replicas.appended(copy)

    async def _ask_all(self, copy: Copy, kind: Kind, epoch: int = -1) -> dict[int, State]:
        """What the other replicas answer; those that do not answer in time are left out."""
        others = [i for i in copy.replica.replicas if i in self.peers]

        async def one(peer: int) -> State | None:
            try:
                return (await self._ask(peer, kind, [(copy, epoch, -1)])).get(copy)
            except PeerError as error:
                logger.info("%s: %s", copy.tp, error)
                return None

        answers = await asyncio.gather(*map(one, others))
        return {peer: state for peer, state in zip(others, answers, strict=True) if state is not None}

    async def _catch_up(self, copy: Copy, states: dict[int, State]) -> None:
        """Wait until the log has all that a leader which pauses has."""
        replica = copy.replica
        leader = next((s for s in states.values() if s.leads and s.epoch == replica.epoch), None)
        if leader is None or not replica.follows:
            return
        deadline = self._clock.monotonic() + PAUSE_SECONDS / 2
        while self._clock.monotonic() < deadline:
            if copy.log.offsets.log_end_offset >= leader.end and replica.complete == replica.epoch:
                return
            await asyncio.sleep(_CAUGHT_UP_POLL)

    def _check(self, copy: Copy, rivals: dict[int, State], answers: dict[int, State], unclean: bool) -> None:
        """Refuse a promotion that could lose what is committed. Raises ELIGIBLE_LEADERS_NOT_AVAILABLE."""
        if unclean:
            return
        count = len(copy.replica.replicas)
        needed = needed_answers(count, self._replicas.needed(copy))
        if 1 + len(answers) < needed:
            raise self._refused(
                copy,
                f"{1 + len(answers)} of {count} replicas answer, {needed} must, or else what another one has "
                "acknowledged could get lost",
            )
        better = self._better(copy, rivals)
        if better is not None:
            raise self._refused(copy, f"broker {better} has more of it; let that one lead")

    def _better(self, copy: Copy, states: dict[int, State]) -> int | None:
        own = copy.replica.standing(copy.log.offsets.log_end_offset)
        return better_than(own, {p: Standing(s.complete, s.end) for p, s in states.items()})

    def _refused(self, copy: Copy, why: str) -> BrokerError:
        return BrokerError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"This broker may not lead {copy.tp}: {why}.",
        )
