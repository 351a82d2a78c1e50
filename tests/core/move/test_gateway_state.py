"""core.move.gateway_state: consumers, keys and users in another data directory, with their offsets translated."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from app.move import translate_answer
from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.directory import BROKER_DATABASE, GATEWAY_DATABASE
from core.move.batches import Run
from core.move.gateway_state import MovedState, move_state, stored_groups
from core.move.groups import GroupOffset
from core.move.journal import Journal, JournalError, MovedTopic, Progress
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.consumers import Subscription
from core.vocabulary.idempotency import KeyedRequest

TP = TopicPartition("t", 0)
CLUSTER = "the-target"
KEY = KeyedRequest("topics/t/records", "key", hashlib.sha256(b"body").digest())
_encode = msgspec.msgpack.Encoder().encode


class Stopped(NamedTuple):
    """A broker that is stopped: its directory, the token of an outstanding batch, a journal of its only topic.

    Offsets of the source are 5 more than those of the target.
    """

    directory: Path
    token: str | None
    journal: Journal
    now_ms: int


def render(results: Any) -> bytes:
    """An answer as `app.native` stores it."""
    records = [{"partition": one.partition, "offset": one.offset} for one in results]
    body = msgspec.json.encode({"topic": "t", "records": records})
    return _encode((200, body, b"application/json"))


@pytest.fixture
async def stopped(tmp_path: Path) -> AsyncIterator[Stopped]:
    clock = ManualClock()
    config = Config(data_dir=tmp_path / "source", group_initial_rebalance_delay_ms=0)
    config.data_dir.mkdir()
    broker = Broker(config, clock)
    await broker.open()
    await broker.users.create("alice", "a long password")
    topic = await broker.topics.create("t")
    await broker.records.produce("t", [NewRecord(None, b"%d" % n) for n in range(10)])
    await broker.partitions.delete_records([(TP, 5)])
    await broker.consumers.create("g", "c", subscription=Subscription(("t",)))
    batch = await broker.consumers.poll("g", "c", limit=2, max_bytes=1_000_000, wait_ms=10_000)
    batch = await broker.consumers.poll("g", "c", limit=2, max_bytes=1_000_000, wait_ms=0, ack=batch.token)
    await broker.consumers.create("fresh", "c", subscription=Subscription(("t",)))
    await broker.consumers.poll("fresh", "c", limit=1, max_bytes=1_000_000, wait_ms=10_000)
    done = await broker.idempotency.produce(KEY, "t", [NewRecord(None, b"keyed")], acks=-1, render=render)
    assert done.answer is not None
    await broker.store.read(lambda connection: None)
    await broker.close()
    with Journal(tmp_path / "journal", create=True) as journal:
        journal.belongs_to(broker.cluster_id, CLUSTER)
        journal.put_topic(MovedTopic("t", topic.topic_id, UUID(int=9), {}, True))
        journal.store({TP: (Progress(5, 11, 6), [Run(5, 0, 6)])})
        yield Stopped(config.data_dir, batch.token, journal, clock.wall_ms())


def move(stopped: Stopped, target: Path, **options: Any) -> MovedState:
    return move_state(
        stopped.directory,
        target,
        stopped.journal,
        cluster_id=CLUSTER,
        now_ms=stopped.now_ms,
        translate_answer=translate_answer,
        **options,
    )


def rows(directory: Path, statement: str) -> list[Any]:
    name = GATEWAY_DATABASE if (directory / GATEWAY_DATABASE).exists() else BROKER_DATABASE
    with closing(sqlite3.connect(directory / name)) as db:
        return db.execute(statement).fetchall()


def change(directory: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(directory / BROKER_DATABASE)) as db, db:
        db.execute(statement, values)


async def test_consumers_keys_and_users_are_there_with_translated_offsets(
    stopped: Stopped, tmp_path: Path
) -> None:
    target = tmp_path / "gateway"
    moved = move(stopped, target)
    assert moved == MovedState(consumers=2, outstanding=2, keys=1, dropped_keys=0, users=1)
    positions = rows(target, "SELECT group_id, position FROM consumer_positions ORDER BY group_id")
    assert positions == [("fresh", 0), ("g", 2)]
    ((nonce, sequence, outstanding, member_id, generation),) = rows(
        target,
        "SELECT nonce, sequence, outstanding, member_id, generation FROM consumers WHERE group_id = 'g'",
    )
    assert f"{nonce}.{sequence}" == stopped.token
    assert msgspec.msgpack.decode(outstanding) == [["t", 0, 2, 4]]
    assert (member_id, generation) == ("", -1)
    ((answer,),) = rows(target, "SELECT answer FROM idempotency_keys")
    _, body, _ = msgspec.msgpack.decode(answer[1:])
    assert msgspec.json.decode(body)["records"] == [{"partition": 0, "offset": 5}]
    assert rows(target, "SELECT value FROM settings WHERE name = 'upstream.cluster.id'") == [(CLUSTER,)]
    for table in ("topics", "groups", "group_members", "committed_offsets"):
        assert rows(target, f"SELECT count(*) FROM {table}") == [(0,)]
    # The source is as it was.
    assert rows(stopped.directory, "SELECT count(*) FROM topics") == [(1,)]


async def test_a_broker_opens_the_copy(stopped: Stopped, tmp_path: Path) -> None:
    target = tmp_path / "gateway"
    move(stopped, target)
    # An embedded broker has the same tables.
    (target / GATEWAY_DATABASE).rename(target / BROKER_DATABASE)
    broker = Broker(Config(data_dir=target), ManualClock())
    await broker.open()
    assert [user.name for user in broker.users.all()] == ["alice"]
    assert broker.consumers.get("g", "c").token == stopped.token
    await broker.close()


async def test_positions_count_where_a_group_has_committed_nothing(stopped: Stopped) -> None:
    assert stored_groups(stopped.directory) == {
        "g": {TP: GroupOffset(7, "")},
        "fresh": {TP: GroupOffset(5, "")},
    }


async def test_a_target_with_a_state_is_refused(stopped: Stopped, tmp_path: Path) -> None:
    move(stopped, tmp_path / "gateway")
    with pytest.raises(JournalError, match="choose an empty data directory"):
        move(stopped, tmp_path / "gateway")
    with pytest.raises(JournalError, match="is it the data directory of a broker"):
        move(stopped._replace(directory=tmp_path / "nothing"), tmp_path / "other")


async def test_a_failed_copy_leaves_nothing_that_a_gateway_would_take(
    stopped: Stopped, tmp_path: Path
) -> None:
    change(stopped.directory, "UPDATE consumer_positions SET position = 12")
    with pytest.raises(JournalError, match="Offset 12 of t-0 is not copied yet"):
        move(stopped, tmp_path / "gateway")
    assert not (tmp_path / "gateway" / GATEWAY_DATABASE).exists()
    change(stopped.directory, "UPDATE consumer_positions SET position = 7")
    assert move(stopped, tmp_path / "gateway").consumers == 2


async def test_a_batch_of_a_topic_that_is_not_moved_is_refused(stopped: Stopped, tmp_path: Path) -> None:
    change(stopped.directory, "UPDATE consumers SET outstanding = ?", _encode([("other", 0, 1, 2)]))
    with pytest.raises(JournalError, match=r"has a batch of other-0 outstanding"):
        move(stopped, tmp_path / "gateway")


async def test_a_key_without_an_answer_is_left_out_if_nothing_was_written(
    stopped: Stopped, tmp_path: Path
) -> None:
    change(stopped.directory, "UPDATE idempotency_keys SET answer = NULL")
    moved = move(stopped, tmp_path / "gateway")
    assert (moved.keys, moved.dropped_keys) == (0, 1)


async def test_a_write_that_ended_half_way_is_refused(stopped: Stopped, tmp_path: Path) -> None:
    change(
        stopped.directory, "UPDATE idempotency_keys SET answer = NULL, places = ?", _encode([(10, -1), None])
    )
    with pytest.raises(JournalError, match=r"1 writes .* half-way \(of t\).*--drop-half-done"):
        move(stopped, tmp_path / "gateway")
    assert move(stopped, tmp_path / "gateway", drop_half_done=True).dropped_keys == 1


async def test_another_release_is_refused(stopped: Stopped, tmp_path: Path) -> None:
    change(stopped.directory, "UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(JournalError, match="start the broker once with this release"):
        move(stopped, tmp_path / "gateway")


async def test_open_transactions_are_refused(stopped: Stopped) -> None:
    change(
        stopped.directory,
        "INSERT INTO pending_offsets VALUES ('g', x'00', 0, 1, 0, 5, -1, '', 0, 1, 0)",
    )
    with pytest.raises(JournalError, match="staged offsets of the groups g"):
        stored_groups(stopped.directory)


def plus(tp: TopicPartition, offset: int) -> int:
    return offset + 100 if tp.topic == "t" else offset


@pytest.mark.parametrize(
    "body, moved",
    [
        ({"topic": "t", "records": [{"partition": 0, "offset": 1, "timestamp": 5}]},
         {"topic": "t", "records": [{"partition": 0, "offset": 101, "timestamp": 5}]}),
        ({"topic": "t", "records": [{"error": {}}]}, {"topic": "t", "records": [{"error": {}}]}),
        ({"records": {"t": [{"partition": 0, "offset": 1}], "u": [{"partition": 0, "offset": 1}]}},
         {"records": {"t": [{"partition": 0, "offset": 101}], "u": [{"partition": 0, "offset": 1}]}}),
        ({"offsets": [{"group": "g", "topic": "t", "partition": 0, "offset": 3}]},
         {"offsets": [{"group": "g", "topic": "t", "partition": 0, "offset": 103}]}),
        ({"acknowledged": [{"topic": "t", "partition": 0, "first_offset": 1, "next_offset": 2}]},
         {"acknowledged": [{"topic": "t", "partition": 0, "first_offset": 101, "next_offset": 102}]}),
    ],
)  # fmt: skip
def test_all_offsets_of_an_answer_are_translated(body: dict[str, Any], moved: dict[str, Any]) -> None:
    answer = _encode((200, msgspec.json.encode(body), b"application/json"))
    _, found, _ = msgspec.msgpack.decode(translate_answer(answer, plus))
    assert msgspec.json.decode(found) == moved


def test_an_answer_that_is_no_json_stays() -> None:
    answer = _encode((200, b"text", b"text/plain"))
    assert translate_answer(answer, plus) == answer
