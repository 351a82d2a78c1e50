"""core.move.copy between two brokers: nothing twice, nothing lost, wherever the process is killed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.client.failures import LinkLost
from core.errors import BrokerError, ErrorCode
from core.move import copy as copying
from core.move.copy import MoveError
from core.move.journal import JournalError
from core.move.topic_settings import HELD, finish
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.core.move.world import Killed, Pair, contents

TP = TopicPartition("t", 0)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with Pair(tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PATIENCE", 5.0)


def some(count: int, first: int = 0) -> list[NewRecord]:
    return [
        NewRecord(b"k%d" % n, b"v%d" % n, (("n", b"%d" % n),), 1_000 + n) for n in range(first, first + count)
    ]


async def fill(pair: Pair, topic: str = "t", *, batches: int = 12, partitions: int = 1) -> None:
    await pair.source.broker.topics.create(topic, partitions=partitions)
    for n in range(batches):
        await pair.write(topic, some(3, n * 3), n % partitions)


def same(pair: Pair, topic: str = "t", partitions: int = 1) -> None:
    """The target has the records of the source, each once and in order."""
    for partition in range(partitions):
        ours = pair.records(pair.source, topic, partition)
        theirs = pair.records(pair.target, topic, partition)
        assert contents(theirs) == contents(ours)
        with pair.journal() as journal:
            tp = TopicPartition(topic, partition)
            assert [journal.translate(tp, one.offset) for one in ours] == [one.offset for one in theirs]


async def test_a_copy_has_the_same_records_settings_and_offsets(pair: Pair) -> None:
    await pair.source.broker.topics.create(
        "t", partitions=3, configs={"retention.ms": "777", "cleanup.policy": "compact"}
    )
    for n in range(9):
        await pair.write("t", some(4, n * 4), n % 3)
    await pair.copy()
    same(pair, partitions=3)
    held = pair.target.broker.topics.get("t").overrides
    assert {name: held.get(name) for name in ("cleanup.policy", "retention.ms")} == {
        "cleanup.policy": "delete", "retention.ms": "-1",
    }  # fmt: skip
    assert (await pair.verify()).equal
    with pair.journal() as journal:
        assert journal.equal_offsets(TP)
        assert await finish(pair.clusters()[1], journal, lambda name: True) == ["t"]
    finished = pair.target.broker.topics.get("t").overrides
    assert (finished["cleanup.policy"], finished["retention.ms"]) == ("compact", "777")
    assert not HELD.keys() & finished.keys() - {"cleanup.policy", "retention.ms"}


async def test_a_source_without_its_first_records_has_translated_offsets(pair: Pair) -> None:
    await fill(pair)
    await pair.source.broker.partitions.delete_records([(TP, 7)])
    await pair.copy()
    same(pair)
    with pair.journal() as journal:
        assert journal.translate(TP, 7) == 0 and journal.translate(TP, 36) == 29
        assert not journal.equal_offsets(TP)
    assert (await pair.verify()).equal


async def test_what_comes_later_is_copied_by_the_next_run(pair: Pair) -> None:
    await fill(pair)
    await pair.copy()
    await pair.write("t", some(5, 100))
    await pair.source.broker.topics.create("new")
    await pair.write("new", some(2))
    await pair.source.broker.topics.create_partitions("t", 2)
    await pair.write("t", some(2, 200), 1)
    await pair.copy()
    same(pair, partitions=2)
    same(pair, "new")
    assert (await pair.verify()).equal


class At:
    """Kills at the n-th point."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.where = ""

    def __call__(self, what: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.where = what
            raise Killed(what)


async def test_a_copy_that_is_killed_anywhere_continues_without_a_record_twice(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PARTITION_BYTES", 700)
    monkeypatch.setattr(copying, "ROUND_BATCHES", 2)
    await fill(pair, batches=14, partitions=2)
    places: set[str] = set()
    for number in range(1, 200):
        kill = At(number)
        try:
            await pair.copy(kill)
        except Killed:
            places.add(kill.where)
            # A second one, soon after the first.
            try:
                await pair.copy(At(1 + number % 7))
            except Killed:
                await pair.copy()
        same(pair, partitions=2)
        await pair.target.broker.topics.delete("t")
        pair.another_move()
        if not kill.where:
            break
    assert number > 20, "the copy ended before it was killed everywhere"
    assert {
        "target produce",
        "target produce answered",
        "store",
        "stored",
        "target create_topic answered",
    } <= places


class Faults:
    """Lets calls fail at random, before or after they did their work, as a network does."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, what: str) -> None:
        if what.startswith("target produce") and self._random.random() < 0.15:
            if what.endswith("answered"):
                raise LinkLost("the answer was lost", sent=True)
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader has moved")


@pytest.mark.parametrize("seed", range(3))
async def test_lost_answers_and_moved_leaders_double_nothing(pair: Pair, seed: int) -> None:
    await fill(pair, batches=20)
    await pair.copy(Faults(seed))
    same(pair)


async def test_a_target_that_forgot_the_producer_gets_a_new_one(pair: Pair) -> None:
    await fill(pair)
    await pair.copy()
    with pair.journal() as journal:
        progress = journal.progress()[TP]
        # The target has never seen this sequence of a producer that it knows.
        progress.sequence += 5
        journal.store({TP: (progress, ())})
    await pair.write("t", some(4, 300))
    await pair.copy()
    same(pair)


async def test_another_writer_on_the_target_is_noticed(pair: Pair) -> None:
    await fill(pair)
    await pair.copy()
    await pair.target.broker.records.produce("t", some(1, 999))
    await pair.write("t", some(1, 500))
    with pytest.raises(MoveError, match="offset 36 that this move has not written"):
        await pair.copy()
    (report,) = (await pair.verify()).partitions
    assert "the target ends at 37" in report.difference or "not copied yet" in report.difference


@pytest.mark.parametrize(
    "case, words",
    [
        ("target has records", "has records already"),
        ("target has partitions", "has 2 partitions, not 1"),
        ("source created again", "deleted and created again"),
        ("source deleted", "was deleted since"),
        ("target created again", "another --work-dir"),
    ],
)
async def test_a_move_stops_where_it_would_mix_topics(pair: Pair, case: str, words: str) -> None:
    await fill(pair)
    source, target = pair.source.broker.topics, pair.target.broker.topics
    if case == "target has records":
        await target.create("t")
        await pair.target.broker.records.produce("t", some(1))
    elif case == "target has partitions":
        await target.create("t", partitions=2)
    else:
        await pair.copy()
        if case.startswith("source"):
            await source.delete("t")
        if case == "source created again":
            await source.create("t")
        if case == "target created again":
            await target.delete("t")
            await target.create("t")
    with pytest.raises(MoveError, match=words):
        await pair.copy()


async def test_one_cluster_cannot_be_both(pair: Pair) -> None:
    pair.clients[1] = pair.clients[0]
    with pytest.raises(MoveError, match="the same cluster"):
        await pair.copy()


async def test_a_journal_is_of_two_clusters(pair: Pair) -> None:
    await fill(pair)
    await pair.copy()
    pair.clients.reverse()
    with pytest.raises(JournalError, match="belongs to a move whose source"):
        await pair.copy()
