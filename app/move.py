"""`sluice move`: opens both clusters and the journal, and runs what the commands ask for.

The commands themselves know the HTTP API alone; they load this module when one of them is called.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from app.commands.errors import USAGE, CommandError
from app.upstream_settings import read_properties
from core.client.cluster import ClusterClient
from core.client.properties import client_settings
from core.clock import Clock
from core.directory import DataDirectory
from core.errors import BrokerError, StartupError
from core.move import topic_settings
from core.move.cluster import MoveCluster
from core.move.copy import Copy, CopyOptions, Lag, MoveError
from core.move.gateway_state import MovedState, Translate, move_state, stored_groups
from core.move.groups import GroupPlan, commit_groups, plan_groups, source_groups
from core.move.journal import Journal, JournalError
from core.move.verify import Report, verify
from core.types import TopicPartition

T = TypeVar("T")

# Seconds until a cluster counts as out of reach when a command begins.
_OPEN_SECONDS = 10.0
# Seconds between two lines about the progress.
_REPORT_SECONDS = 2.0
# While it follows, new topics and partitions are looked for this often, in seconds.
_TOPICS_SECONDS = 10.0

_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


class Place(NamedTuple):
    """How to reach a cluster: HOST:PORT of some brokers, and a file of Kafka's client properties."""

    bootstrap: str
    config: Path | None


class Move(NamedTuple):
    """What all commands of a move need. `topics` are names with `*`; none means all topics."""

    source: Place
    target: Place | None
    work_dir: Path
    topics: tuple[str, ...]

    def wants(self, topic: str) -> bool:
        """Return whether a topic is part of the move."""
        return not self.topics or any(fnmatchcase(topic, one) for one in self.topics)


class CannotTellError(CommandError):
    """The comparison could not be made."""

    exit_code = USAGE


# --- commands -----------------------------------------------------------------------------------------------


def copy(
    move: Move, options: CopyOptions, *, follow: bool, report: Callable[[list[Lag], int], None]
) -> tuple[list[Lag], int]:
    """Copy until the target has what the source had at the start; with `follow` until SIGINT or SIGTERM.

    `report` gets the lags and the number of records copied, every few seconds. Return both in the end.
    """

    async def work() -> tuple[list[Lag], int]:
        async with _clusters(move) as (source, target):
            with Journal(move.work_dir, create=True) as journal:
                run = Copy(source, target, journal, move.wants, options)
                await run.open()
                reporting = asyncio.create_task(
                    _every(_REPORT_SECONDS, lambda: report(run.lags(), run.copied))
                )
                try:
                    await run.until_caught_up()
                    if follow:
                        await _follow(run)
                finally:
                    reporting.cancel()
                    run.flush()
                return run.lags(), run.copied

    return _run(work())


def finish(move: Move) -> list[str]:
    """Give the topics of the target the settings that were held back; return their names."""

    async def work() -> list[str]:
        with Journal(move.work_dir, create=False) as journal:
            async with _cluster(_target(move), "target") as target:
                return await topic_settings.finish(target, journal, move.wants)

    return _run(work())


def compare(move: Move, *, groups: bool) -> Report:
    """Compare both clusters. Raises CannotTellError."""

    async def work() -> Report:
        async with _clusters(move) as (source, target):
            with Journal(move.work_dir, create=False) as journal:
                journal.belongs_to(source.cluster_id, target.cluster_id)
                return await verify(source, target, journal, move.wants, groups=groups)

    try:
        return _run(work())
    except CommandError as error:
        raise CannotTellError(f"Cannot tell: {error.text}", *error.hints) from None


def groups(
    move: Move, chosen: Sequence[str], *, data_dir: Path | None, dry_run: bool
) -> tuple[list[GroupPlan], int]:
    """Translate the offsets of groups and commit them; return what was planned, and the number of commits.

    They are read over the source's Kafka port, or in the data directory of a source that is stopped.
    """

    async def work() -> tuple[list[GroupPlan], int]:
        with Journal(move.work_dir, create=False) as journal:
            if data_dir is not None:
                with _stopped(data_dir):
                    offsets = stored_groups(data_dir)
                    if chosen:
                        offsets = {name: one for name, one in offsets.items() if name in chosen}
            else:
                async with _cluster(move.source, "source") as source:
                    offsets = await source_groups(source, chosen)
            async with _cluster(_target(move), "target") as target:
                plans = await plan_groups(target, journal, offsets, move.wants)
                return plans, 0 if dry_run else await commit_groups(target, plans)

    return _run(work())


def consumers(move: Move, data_dir: Path, gateway_dir: Path, *, drop_half_done: bool) -> MovedState:
    """Copy the state of a gateway that is stopped to the data directory of one over the target."""
    with (
        _refusals(),
        Journal(move.work_dir, create=False) as journal,
        _stopped(data_dir),
        _stopped(gateway_dir),
    ):
        cluster_id = journal.facts().get("target", "")
        return move_state(
            data_dir,
            gateway_dir,
            journal,
            cluster_id=cluster_id,
            now_ms=Clock().wall_ms(),
            translate_answer=translate_answer,
            drop_half_done=drop_half_done,
        )


# --- answers of writes --------------------------------------------------------------------------------------


class _StoredAnswer(NamedTuple):
    """As `app.native.idempotency` stores it."""

    status: int
    body: bytes
    media_type: bytes


_decode_stored = msgspec.msgpack.Decoder(_StoredAnswer).decode
_encode_stored = msgspec.msgpack.Encoder().encode


def translate_answer(answer: bytes, translate: Translate) -> bytes:
    """Return a stored answer with the offsets in its JSON translated; any other answer as it is."""
    stored = _decode_stored(answer)
    try:
        document = _json(stored.body)
    except msgspec.DecodeError:
        return answer
    moved = _translated(document, None, translate)
    return answer if moved == document else _encode_stored(stored._replace(body=_encode_json(moved)))


def _translated(value: Any, topic: str | None, translate: Translate) -> Any:
    """Return JSON with all offsets translated. A topic is named beside them, or by the member that has them."""
    if isinstance(value, list):
        return [_translated(one, topic, translate) for one in value]
    if not isinstance(value, dict):
        return value
    topic = value["topic"] if isinstance(value.get("topic"), str) else topic
    partition = value.get("partition")
    found: dict[str, Any] = {}
    for name, one in value.items():
        if name in _OFFSETS and isinstance(one, int) and isinstance(partition, int) and topic is not None:
            found[name] = translate(TopicPartition(topic, partition), one)
        elif name == "records" and isinstance(one, dict):
            found[name] = {key: _translated(some, key, translate) for key, some in one.items()}
        else:
            found[name] = _translated(one, topic, translate)
    return found


_OFFSETS = frozenset({"offset", "first_offset", "next_offset"})


# --- clusters -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def _clusters(move: Move) -> AsyncIterator[tuple[MoveCluster, MoveCluster]]:
    async with _cluster(move.source, "source") as source, _cluster(_target(move), "target") as target:
        yield source, target


@asynccontextmanager
async def _cluster(place: Place, role: str) -> AsyncIterator[MoveCluster]:
    option = "--to-config" if role == "target" else "--from-config"
    properties = {} if place.config is None else read_properties(place.config, option)
    try:
        settings = client_settings({**properties, "bootstrap.servers": place.bootstrap})
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None
    client = ClusterClient(settings, Clock())
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            await client.open()
    except (BrokerError, TimeoutError) as error:
        await client.close()
        why = (
            error.message
            if isinstance(error, BrokerError)
            else f"no broker answered in {_OPEN_SECONDS:.0f} s."
        )
        raise CommandError(f"The {role} at {place.bootstrap} cannot be reached: {why}") from None
    try:
        yield MoveCluster(client)
    finally:
        await client.close()


def _target(move: Move) -> Place:
    if move.target is None:
        raise CommandError("Name the target: --to HOST:PORT.")
    return move.target


@contextmanager
def _stopped(data_dir: Path) -> Any:
    """Lock a data directory. Raises StartupError if a process uses it."""
    directory = DataDirectory(data_dir)
    directory.acquire()
    try:
        yield
    finally:
        directory.release()


# --- life ---------------------------------------------------------------------------------------------------


async def _follow(run: Copy) -> None:
    """Copy what comes, until a signal asks to stop. The round under way is finished."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    looked = loop.time()
    while not stop.is_set():
        await run.round()
        if loop.time() - looked > _TOPICS_SECONDS:
            await run.take_topics()
            looked = loop.time()


async def _every(seconds: float, step: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        step()


def _run(work: Awaitable[T]) -> T:
    async def awaited() -> T:
        return await work

    with _refusals():
        return asyncio.run(awaited())


@contextmanager
def _refusals() -> Any:
    try:
        yield
    except (MoveError, JournalError, StartupError) as error:
        raise CommandError(str(error)) from None
    except BrokerError as error:
        raise CommandError(f"{error.message} ({error.code.name})") from None
