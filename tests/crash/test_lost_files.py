"""A data directory of which files were deleted or zeroed, each and each pair of them (R4).

The broker is stopped, or dies, and comes up again with the same topics, settings, records, producers and committed
offsets. SQLite's `-wal` takes with it what was committed since the last checkpoint of the broker, and nothing else.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import DATABASE, Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import StartupError
from core.log.checkpoint import CLEAN_SHUTDOWN, CLEANER_OFFSETS, LEADER_EPOCHS, RECOVERY_POINTS
from core.records.batch import build_batch, read_header
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from tests.core.log.shelf import read_all

BIG = os.environ.get("SLUICE_LONG_TESTS") == "1"
PLAIN, COMPACT = TopicPartition("plain", 0), TopicPartition("compact", 0)
CONFIGS: dict[TopicPartition, dict[str, str | None]] = {
    PLAIN: {"segment.bytes": "300"},
    COMPACT: {"cleanup.policy": "compact", "segment.bytes": "300"},
}
GROUP = "readers"
WAL, SHM = f"{DATABASE}-wal", f"{DATABASE}-shm"


def broker_over(directory: Path) -> Broker:
    directory.mkdir(exist_ok=True)
    return Broker(Config(data_dir=directory, index_interval_bytes=100), ManualClock())


def append(broker: Broker, tp: TopicPartition, sequence: int) -> tuple[int, bool]:
    """Append one record as an idempotent producer; its offset, and whether it was there already."""
    new = [NewRecord(key=b"k%d" % (sequence % 5), value=b"%d " % sequence + b"x" * 40)]
    batch = build_batch(new, now_ms=1, producer_id=7, producer_epoch=0, base_sequence=sequence)
    result = broker.logs.get(tp).append(batch, [read_header(batch)], leader_epoch=0)
    return result.base_offset, result.duplicate


async def live(broker: Broker) -> None:
    """A little of everything, with a checkpoint on the way."""
    await broker.open()
    for (topic, _), configs in CONFIGS.items():
        await broker.topics.create(topic, configs=configs)
    await broker.topics.create("gone")
    append(broker, TopicPartition("gone", 0), 0)
    for tp, i in itertools.product(CONFIGS, range(12)):
        append(broker, tp, i)
    await broker.topics.delete("gone")
    await broker.groups.commit(GROUP, CommitRequest([Commit("plain", 0, 4)]))
    await broker.checkpoint()
    for i in range(12, 15):
        append(broker, PLAIN, i)


def shown(broker: Broker) -> Any:
    """Everything that must be the same."""
    return (
        {topic.name: (topic.topic_id, topic.partitions, topic.overrides) for topic in broker.topics.list()},
        {tp: [(r.offset, r.key, r.value) for r in read_all(broker.logs.get(tp))] for tp in CONFIGS},
        {tp: broker.logs.get(tp).offsets for tp in CONFIGS},
        broker.groups.committed(GROUP, "plain", 0),
        broker.cluster_id,
    )  # fmt: skip


def victims(directory: Path) -> list[str]:
    """The files of which the rows speak, as paths below the directory: the newest of each kind."""
    partition = directory / str(PLAIN)
    inside = [sorted(partition.glob(f"*{end}"))[-1] for end in (".index", ".timeindex", ".snapshot")]
    named = [partition / LEADER_EPOCHS, *(directory / n for n in (RECOVERY_POINTS, CLEANER_OFFSETS))]
    rest = [directory / name for name in (CLEAN_SHUTDOWN, WAL, SHM) if (directory / name).exists()]
    return [str(path.relative_to(directory)) for path in (*inside, *named, *rest)]


def spoilt(origin: Path, copies: Path) -> Iterator[tuple[Path, tuple[tuple[str, str], ...]]]:
    """Copies of a directory with one or two files deleted or zeroed; a part of the pairs in the short form."""
    names = victims(origin)
    ways = [*itertools.product(names, ("deleted", "zeroed"))]
    sets = [(way,) for way in ways]
    pairs = [pair for pair in itertools.combinations(ways, 2) if pair[0][0] != pair[1][0]]
    for number, chosen in enumerate([*sets, *(pairs if BIG else pairs[:: len(pairs) // 40])]):
        copy = Path(shutil.copytree(origin, copies / str(number)))
        for name, how in chosen:
            size = (copy / name).stat().st_size
            (copy / name).unlink()
            if how == "zeroed":
                (copy / name).write_bytes(bytes(size))
        yield copy, chosen
        shutil.rmtree(copy)


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
async def test_it_starts_with_the_same_data_whichever_file_is_lost(tmp_path: Path, stopped: bool) -> None:
    origin = tmp_path / "origin"
    broker = broker_over(origin)
    await live(broker)
    expected = shown(broker)
    if stopped:
        await broker.close()
    image = Path(shutil.copytree(origin, tmp_path / "image"))
    if not stopped:
        await broker.close()
        assert {WAL, SHM} <= {*victims(image)}
    for copy, chosen in spoilt(image, tmp_path):
        broker = broker_over(copy)
        await broker.open()
        try:
            assert shown(broker) == expected, chosen
            assert append(broker, PLAIN, 14) == (14, True), chosen
            assert append(broker, PLAIN, 15) == (15, False), chosen
        finally:
            await broker.close()
        assert not list(copy.glob("*-stray")), chosen


async def test_what_was_committed_since_the_checkpoint_is_lost_with_the_write_ahead_log(
    tmp_path: Path,
) -> None:
    """A lost -wal is no crash, but the loss of a file with the only copy; it must not be more than that."""
    broker = broker_over(tmp_path / "origin")
    await live(broker)
    await broker.groups.commit(GROUP, CommitRequest([Commit("plain", 0, 9)]))
    await broker.topics.create("new")
    await broker.groups.commit(GROUP, CommitRequest([Commit("plain", 0, 11)]))
    image = Path(shutil.copytree(tmp_path / "origin", tmp_path / "image"))
    await broker.close()
    (image / WAL).unlink()
    broker = broker_over(image)
    await broker.open()
    committed = broker.groups.committed(GROUP, "plain", 0)
    assert committed is not None and committed.offset == 9
    assert [topic.name for topic in broker.topics.list()] == ["compact", "new", "plain"]
    await broker.close()


@pytest.mark.parametrize("how", ["deleted", "emptied"])
async def test_without_its_database_the_broker_refuses_to_start_and_touches_no_log(
    tmp_path: Path, how: str
) -> None:
    broker = broker_over(tmp_path / "data")
    await live(broker)
    expected = shown(broker)
    await broker.close()
    database = tmp_path / "data" / DATABASE
    kept = database.read_bytes()
    database.unlink()
    if how == "emptied":
        database.touch()
    for _ in range(2):
        with pytest.raises(StartupError, match="is empty, but there are records of compact-0, plain-0 here"):
            await broker_over(tmp_path / "data").open()
    for path in (tmp_path / "data").glob(f"{DATABASE}*"):
        path.unlink()
    database.write_bytes(kept)
    broker = broker_over(tmp_path / "data")
    await broker.open()
    assert shown(broker) == expected
    await broker.close()


async def test_an_old_copy_of_the_database_costs_no_records(tmp_path: Path) -> None:
    """What the copy does not know is set aside, under a name that says whose it was."""
    broker = broker_over(tmp_path / "data")
    await broker.open()
    await broker.topics.create("plain", configs=CONFIGS[PLAIN])
    await broker.close()
    old = (tmp_path / "data" / DATABASE).read_bytes()
    broker = broker_over(tmp_path / "data")
    await broker.open()
    await broker.topics.create("compact", configs=CONFIGS[COMPACT])
    append(broker, COMPACT, 0)
    await broker.close()
    segment = (tmp_path / "data" / str(COMPACT) / "00000000000000000000.log").read_bytes()
    (tmp_path / "data" / DATABASE).write_bytes(old)
    broker = broker_over(tmp_path / "data")
    await broker.open()
    assert [topic.name for topic in broker.topics.list()] == ["plain"]
    await broker.close()
    (stray,) = (tmp_path / "data").glob("compact-0.*-stray")
    assert (stray / "00000000000000000000.log").read_bytes() == segment
