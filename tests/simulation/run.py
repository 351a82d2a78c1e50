"""One seed, one run: a broker, clients of all protocols, a disk, a network and a clock, all in virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from core.config import Config, Endpoint
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.core.log.disk import Died
from tests.simulation import rules, transactions
from tests.simulation.ahead import TOPIC as AHEAD
from tests.simulation.ahead import (
    AheadReader,
    AheadWriter,
    CommitReader,
    EpochReader,
    LineReader,
    ManagedReader,
    RegisterReader,
)
from tests.simulation.faults import Faults, Trimmer, Vandal
from tests.simulation.http_transactions import LongWriter, OneShotWriter
from tests.simulation.ledger import BrokenPromiseError, Ledger
from tests.simulation.lines import LineMember, LineWriter
from tests.simulation.loop import SimLoop
from tests.simulation.machine import Machine
from tests.simulation.members import ManagedConsumer, Member
from tests.simulation.old_client import OLD_PORT, OLD_TOPIC, OldClient
from tests.simulation.principals import GUEST_HTTP_PORT, GUEST_KAFKA_PORT, GUESTS, Administrator
from tests.simulation.producers import IdempotentProducer, KeyWriter, PlainProducer, RestProducer
from tests.simulation.queue_readers import QueueReader
from tests.simulation.readers import Reader, fetch, values_of
from tests.simulation.streams import KafkaStream
from tests.simulation.transactions import CommittedReader, Rival, TransactionalProducer
from tests.simulation.world import FINISH_SECONDS, KAFKA_PORT, TEXT_PORT, Client, World

CREATE_TOPICS, LIST_OFFSETS = 19, 2
# Virtual seconds under faults; then peace, and the final reckoning.
SECONDS = 20.0
# The share of seeds with an authorizer, users and rules that change. The others run as if there were none.
GUARDED = 0.25
PARTITIONS = {
    "idem": 2,
    "rest": 2,
    "plain": 2,
    "compact": 1,
    OLD_TOPIC: 1,
    AHEAD: 1,
    transactions.TOPIC: transactions.PARTITIONS,
}
CLIENTS: tuple[tuple[str, Callable[[World, str], Client], int], ...] = (
    ("idem", IdempotentProducer, 2),
    ("plain", PlainProducer, 1),
    ("key", KeyWriter, 1),
    ("rest", RestProducer, 1),
    ("reader", Reader, 2),
    ("member", Member, 2),
    ("managed", ManagedConsumer, 2),
    ("line", LineWriter, 1),
    ("linemember", LineMember, 3),
    ("old", OldClient, 1),
    ("vandal", Vandal, 1),
    ("trimmer", Trimmer, 1),
    ("aheadwriter", AheadWriter, 1),
    ("epochs", EpochReader, 1),
    ("commits", CommitReader, 1),
    ("register", RegisterReader, 1),
    ("script", LineReader, 1),
    ("held", ManagedReader, 1),
    ("worker", QueueReader, 2),
    ("txn", TransactionalProducer, 2),
    ("oneshot", OneShotWriter, 1),
    ("several", LongWriter, 1),
    ("rival", Rival, 1),
    ("committed", CommittedReader, 1),
)

GUEST_LISTENERS = (
    Endpoint("http", "127.0.0.1", GUEST_HTTP_PORT, (("auth", "token"),)),
    Endpoint("kafka", "127.0.0.1", GUEST_KAFKA_PORT, (("auth", "plain"),)),
)


@dataclass
class Outcome:
    """What came of a run. `trace` is what happened, line by line; equal seeds give equal traces."""

    seed: int
    failure: str | None = None
    trace: list[str] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    starts: int = 0

    @property
    def digest(self) -> str:
        """A short name for the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]


class Complaints(logging.Handler):
    """The broker's log, in the trace. Tracebacks are failures, unless the disk or a death explains them."""

    def __init__(self, trace: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace(f"log: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError | Died | asyncio.CancelledError):
            lines = "".join(traceback.format_exception(error))
            self.found.append(f"{record.getMessage()}\n{lines}")


def has_principals(seed: int) -> bool:
    """Whether a seed has an authorizer and users."""
    return random.Random(f"principals {seed}").random() < GUARDED


def simulate(seed: int, *, seconds: float = SECONDS) -> Outcome:
    """Run one seed from start to end."""
    outcome = Outcome(seed)
    directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    loop = SimLoop()

    def trace(text: str) -> None:
        # Each run has a directory of its own; equal seeds give equal traces.
        outcome.trace.append(f"{loop.now:9.4f} {text.replace(str(directory), '')}")

    complaints = Complaints(trace)
    logging.getLogger().addHandler(complaints)
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_run(loop, seed, directory / "data", seconds, outcome))
        _check_quiet(loop, complaints)
    except (AssertionError, Exception) as error:
        outcome.failure = f"{type(error).__name__}: {error}"
        if not isinstance(error, BrokenPromiseError):
            outcome.trace += traceback.format_exc().splitlines()
    finally:
        logging.getLogger().removeHandler(complaints)
        shutil.rmtree(directory, ignore_errors=True)
    return outcome


def _check_quiet(loop: SimLoop, complaints: Complaints) -> None:
    crashes = [one for one in loop.crashes if not isinstance(one.get("exception"), Died)]
    if crashes:
        raise BrokenPromiseError(f"an uncaught exception: {crashes[0]}")
    if complaints.found:
        raise BrokenPromiseError(f"a traceback in the log: {complaints.found[0]}")


async def _run(loop: SimLoop, seed: int, data_dir: Path, seconds: float, outcome: Outcome) -> None:
    def trace(text: str) -> None:
        outcome.trace.append(f"{loop.now:9.4f} {text}")

    chance = random.Random(f"run {seed}")
    guarded = has_principals(seed)
    config = Config(
        data_dir=data_dir,
        super_users=("User:ANONYMOUS",) if guarded else (),
        listeners=(
            Endpoint("http", "127.0.0.1", 8082),
            Endpoint("kafka", "127.0.0.1", KAFKA_PORT),
            Endpoint("text", "127.0.0.1", TEXT_PORT),
            Endpoint("kafka07", "127.0.0.1", OLD_PORT, (("magic", "1"),)),
            *(GUEST_LISTENERS if guarded else ()),
        ),
        group_initial_rebalance_delay_ms=chance.choice((0, 500, 3000)),
        checkpoint_interval_ms=chance.choice((1000, 10_000)),
        compaction_interval_ms=2_000,
        compaction_min_dirty_ratio=0.1,
        max_open_files=chance.choice((20, 4000)),
    )
    machine = Machine(loop, seed, config, trace)
    try:
        await machine.start()
        world = World(seed, loop, machine, Ledger(), trace, PARTITIONS)
        if guarded:
            world.partitions = PARTITIONS | {rules.TOPIC: rules.PARTITIONS}
            world.rules = rules.Rules()
        faults = Faults(world, rate=chance.choice((3.0, 8.0, 20.0)))
        await _create_topics(world, chance)
        kinds = CLIENTS + GUESTS if guarded else CLIENTS
        clients = [make(world, f"{name}{i}") for name, make, count in kinds for i in range(count)]
        for client in clients:
            if isinstance(client, Administrator):
                await client.begin()
        await _live(world, faults, clients, seconds)
        for client in clients:
            if isinstance(client, AheadReader):
                await client.drain()
        await _reckon(world)
        outcome.answers, outcome.faults, outcome.starts = world.answers, faults.counts, machine.starts
    finally:
        machine.restore()


async def _create_topics(world: World, chance: random.Random) -> None:
    """Small segments, so that rolls, deletions and compactions happen all the time."""
    size = str(chance.choice((300, 1000, 5000)))
    topics = []
    for name, partitions in world.partitions.items():
        configs = [CreatableTopicConfig("segment.bytes", size)]
        if name == "compact":
            configs.append(CreatableTopicConfig("cleanup.policy", "compact"))
        topics.append(
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        )
    stream = KafkaStream(world.machine.network, KAFKA_PORT)
    answer = await stream.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    refused = [(one.name, one.error_message) for one in answer.topics if one.error_code]
    assert not refused, refused
    stream.close()


async def _live(world: World, faults: Faults, clients: list[Client], seconds: float) -> None:
    """Clients and faults for a while, then peace, in which every client must come to its end."""
    work = [asyncio.ensure_future(one.run()) for one in clients]
    misfortune = asyncio.ensure_future(faults.run())
    done, _ = await asyncio.wait([*work, misfortune], timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    world.closing = True
    await misfortune
    await faults.make_peace()
    world.trace("peace")
    _, late = await asyncio.wait(work, timeout=FINISH_SECONDS)
    for task in work:
        if task.done():
            task.result()
    if late:
        names = [one.name for one, task in zip(clients, work, strict=True) if task in late]
        raise BrokenPromiseError(f"{names} wait without an end")


async def _reckon(world: World) -> None:
    """Read everything, restart, read it again."""
    before = await _read_everything(world)
    _check(world, before)
    await transactions.reckon(world, "before the last start")
    await world.machine.stop()
    await world.machine.start()
    after = await _read_everything(world)
    for place, found in before.items():
        # A compaction may have ended, or a transaction timed out; what they leave has been checked as such.
        if found != after[place] and place[0] not in ("compact", transactions.TOPIC):
            raise BrokenPromiseError(f"{place}: a clean restart has changed what can be read")
    _check(world, after)
    await transactions.reckon(world, "after the last start")
    await world.machine.stop()


def _check(
    world: World, read: dict[tuple[str, int], tuple[int, dict[int, tuple[bytes | None, bytes]]]]
) -> None:
    found: dict[tuple[str, int, int], bytes] = {}
    for (topic, partition), (start, records) in read.items():
        values = {at: value for at, (_, value) in records.items()}
        if topic == AHEAD:
            world.ledger.check_delivered(set(values.values()))
        if topic == rules.TOPIC and world.rules is not None:
            world.rules.check_log(set(values.values()))
        if topic == transactions.TOPIC:
            # Aborted records and markers are in the log too; `reckon` looks at what is committed.
            continue
        if topic == "compact":
            _check_keys(world, records)
            continue
        world.ledger.check_partition(topic, partition, start, values)
        found.update({(topic, partition, at): value for at, value in values.items()})
    trimmed = {
        value
        for (topic, partition), known in world.ledger.records.items()
        for at, value in known.items()
        if (topic, partition) in read and at < read[topic, partition][0]
    }
    world.ledger.check_once(found, trimmed)


def _check_keys(world: World, records: dict[int, tuple[bytes | None, bytes]]) -> None:
    newest = {key: value for _, (key, value) in sorted(records.items()) if key is not None}
    for (topic, key), allowed in world.ledger.keys.items():
        value = newest.get(key)
        # Before the first acknowledgement there may be nothing.
        if value not in allowed and not (
            value is None and (topic, key) not in world.ledger.acknowledged_keys
        ):
            raise BrokenPromiseError(
                f"the newest value of {key!r} is {value!r}; it should be one of {allowed}"
            )


async def _read_everything(
    world: World,
) -> dict[tuple[str, int], tuple[int, dict[int, tuple[bytes | None, bytes]]]]:
    """Every record of every partition, with the offset at which it starts."""
    stream = KafkaStream(world.machine.network, KAFKA_PORT)
    everything = {}
    for topic, partitions in world.partitions.items():
        for partition in range(partitions):
            asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=partition, timestamp=-2)])
            answer = await stream.call(LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=[asked]))
            start = offset = answer.topics[0].partitions[0].offset
            records: dict[int, tuple[bytes | None, bytes]] = {}
            while True:
                found = await fetch(stream, topic, partition, offset, 12)
                if found.error_code:
                    raise BrokenPromiseError(
                        f"{topic}-{partition} @{offset} cannot be read: {found.error_code}"
                    )
                some = values_of(bytes(found.records or b""), 12, offset)
                if not some:
                    break
                records |= some
                offset = max(some) + 1
            everything[topic, partition] = (start, records)
    stream.close()
    return everything
