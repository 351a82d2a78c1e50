"""Topics, groups, offsets and keys on several brokers: a promoted broker has what was acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.changelog import (
    apply_changes,
    decode_changes,
    encode_changes,
    touch_topics,
    whole_database,
)
from core.metadata.statements import sql
from core.metadata.store import Store
from core.metadata.topics import load_settings, put_setting
from core.records.record import NewRecord
from core.replication.cluster import Cluster
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.idempotency import KeyedRequest
from core.vocabulary.replicas import METADATA
from tests.core.replication.brokers import Brokers, until
from tests.core.replication.test_cluster_roles import content, refused


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path) as brokers:
        await brokers.create("t")
        yield brokers


async def commit(broker: Broker, offset: int, group: str = "g") -> ErrorCode:
    (code,) = await broker.groups.commit(group, CommitRequest([Commit("t", 0, offset)]))
    return code


def committed(broker: Broker, group: str = "g") -> int:
    found = broker.groups.committed(group, "t", 0)
    return -1 if found is None else found.offset


async def tables(broker: Broker) -> dict[str, Any]:
    """The database of a broker, without what is its own."""
    return dict(await broker.store.read(whole_database))


async def promote(brokers: Brokers, number: int) -> Broker:
    await brokers[number].roles.set(METADATA, "leader")
    return await brokers.serving(number)


async def test_a_promoted_broker_has_what_was_committed(two: Brokers) -> None:
    for offset in range(1, 6):
        assert await commit(two[1], offset) is ErrorCode.NONE
    await two.stop(1)
    assert committed(await promote(two, 2)) == 5


async def test_two_databases_are_the_same_after_all_kinds_of_changes(two: Brokers) -> None:
    broker = two[1]
    await commit(broker, 3)
    await broker.topics.create("u", partitions=2)
    await broker.topics.alter_configs("u", {"retention.ms": "9"})
    await broker.consumers.create("managed", "c1")
    request = KeyedRequest("/p", "key", b"f" * 32)
    await broker.idempotency.produce(
        request, "t", [NewRecord(value=b"x")], acks=-1, render=lambda results: b"answer"
    )
    await broker.groups.delete("g")
    await broker.topics.delete("u")
    end = broker.partitions.info(METADATA).offsets.log_end_offset
    await until(lambda: two[2].metadata._applied == end)  # type: ignore[union-attr]
    assert await tables(two[1]) == await tables(two[2])
    assert content(two[1], METADATA) == content(two[2], METADATA)


async def test_an_idempotency_key_is_known_to_the_promoted_broker(two: Brokers) -> None:
    request = KeyedRequest("/p", "key", b"f" * 32)
    new = [NewRecord(value=b"once")]
    first = await two[1].idempotency.produce(request, "t", new, acks=-1, render=lambda results: b"answer")
    await two[1].store.read(load_settings)  # the answer is stored without the caller
    assert not any((await two[2].roles.lead_everything()).values())
    await two.serving(2)
    again = await two[2].idempotency.produce(request, "t", new, acks=-1, render=lambda results: b"other")
    assert (first.answer, again.answer, again.replayed) == (b"answer", b"answer", True)


async def test_other_brokers_send_to_the_one_that_keeps_them(two: Brokers) -> None:
    assert two[2].roles.metadata_leader == 1
    assert await commit(two[2], 1) is ErrorCode.NOT_COORDINATOR
    await refused(ErrorCode.NOT_CONTROLLER, two[2].store.submit([put_setting("a", "b")]))
    await refused(ErrorCode.NOT_CONTROLLER, two[2].topics.delete("t"))


async def test_without_the_other_broker_a_change_fails_in_time_and_may_come_later(tmp_path: Path) -> None:
    async with Brokers(tmp_path, metadata_timeout_ms=200) as two:
        await two.create("t")
        await two.stop(2)
        await refused(ErrorCode.REQUEST_TIMED_OUT, two[1].topics.create("u"))
        assert await commit(two[1], 7) is not ErrorCode.NONE
        await two.start(2)
        await two.in_sync(METADATA)
        await until(lambda: committed(two[1]) == 7 or two[1].groups, "the change to come to pass")
        assert await commit(two[1], 8) is ErrorCode.NONE
        await two.create("v")


async def test_a_change_that_was_never_replicated_is_lost_with_its_leader(tmp_path: Path) -> None:
    async with Brokers(tmp_path, metadata_timeout_ms=200) as two:
        await two.create("t")
        await two.stop(2)
        await refused(ErrorCode.REQUEST_TIMED_OUT, two[1].topics.create("u"))
        await two.stop(1)
        await two.start(2)
        await two[2].roles.set(METADATA, "leader")
        await two.start(1)
        await two.serving(2)
        await two.create("v")
        assert content(two[1], METADATA) == content(two[2], METADATA)
        assert await tables(two[1]) == await tables(two[2])
        assert [topic.name for topic in two[1].topics.list()] == ["t", "v"]


async def test_a_broker_that_was_alone_gives_its_topics_and_groups_to_the_others(tmp_path: Path) -> None:
    alone = Broker(Config(data_dir=tmp_path / "1"), Clock())
    (tmp_path / "1").mkdir()
    await alone.open()
    await alone.topics.create("t", partitions=2)
    await alone.records.produce("t", [NewRecord(value=b"old")], partition=1)
    await commit(alone, 5)
    cluster_id = alone.cluster_id
    await alone.close()
    async with Brokers(tmp_path) as two:
        await until(lambda: two._knows(2, "t"))
        assert (two[1].topics.get("t").replicas, two[1].cluster_id, two[2].cluster_id) == (
            (1,),
            cluster_id,
            cluster_id,
        )
        assert committed(two[1]) == 5
        await two.create("u")
        await two[2].roles.set(METADATA, "leader")
        assert committed(await two.serving(2)) == 5


async def test_the_history_begin_again_with_the_whole_database(tmp_path: Path) -> None:
    async with Brokers(tmp_path, metadata_log_bytes=2000) as two:
        await two.create("t")
        for offset in range(30):
            await commit(two[1], offset)
        await two.stop(2)
        metadata = two[1].metadata
        assert metadata is not None
        await two.start(2)
        await two.in_sync(METADATA)
        await metadata.shorten()
        start, end, _, _ = two[1].partitions.info(METADATA).offsets
        assert start == end - 1 > 0
        await commit(two[1], 99)
        await until(lambda: two[2].metadata._applied == end + 1)  # type: ignore[union-attr]
        assert await tables(two[1]) == await tables(two[2])
        await two.stop(1)
        assert committed(await promote(two, 2)) == 99


async def test_what_an_unclean_promotion_has_dropped_is_dropped_everywhere(tmp_path: Path) -> None:
    async with Brokers(tmp_path, metadata_min_insync_replicas=1, replica_lag_time_max_ms=300) as two:
        await two.create("t")
        await two.stop(2)
        await until(lambda: two[1].partitions.info(METADATA).isr == (1,))
        await two[1].topics.create("gone", replication_factor=1)
        await two.stop(1)
        await two.start(2)
        await refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, two[2].roles.set(METADATA, "leader"))
        await two[2].roles.set(METADATA, "leader", unclean=True)
        await two.serving(2)
        await two[2].topics.create("new", replication_factor=1)
        await two.start(1)
        await until(lambda: two._knows(1, "new"))
        assert [topic.name for topic in two[1].topics.list()] == ["new", "t"]
        await until(
            lambda: two[1].metadata._applied == two[2].partitions.info(METADATA).offsets.high_watermark
        )  # type: ignore[union-attr]
        assert await tables(two[1]) == await tables(two[2])


async def test_a_broker_knows_what_it_has_repeated_before_its_log_can_be_cut(
    two: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut that came first was compared with 0, and changes of another history at those offsets were left out."""
    repeated = two[1].partitions.info(METADATA).offsets.high_watermark
    await two.stop(1)
    known: list[int] = []
    start = Cluster.start

    def watched(cluster: Cluster) -> None:
        known.append(cluster._before_cut.__self__._applied)  # type: ignore[attr-defined]
        start(cluster)

    monkeypatch.setattr(Cluster, "start", watched)
    await two.start(1)
    assert known == [repeated] and repeated > 0


# --- changes as data ---------------------------------------------------------------------------------------


async def test_changes_of_one_database_make_another_the_same(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "one.db", Clock()), Store(tmp_path / "other.db", Clock())
    for store in (one, other):
        store.replicated = True
        await store.open(check=False)
    shipped: list[bytes] = []

    async def ship(data: bytes) -> int:
        shipped.append(data)
        return len(shipped)

    one.ship = ship
    try:
        await one.submit([put_setting("a", "\0x"), put_setting("b", "é")])
        await one.submit([put_setting("local.own", "1")], local=True)
        assert len(shipped) == 1
        for data in shipped:
            assert decode_changes(encode_changes(decode_changes(data))) == decode_changes(data)
            await other.submit([apply_changes(decode_changes(data))], local=True)
        assert await one.read(whole_database) == await other.read(whole_database)
        assert (await one.read(load_settings))["local.own"] == "1"
    finally:
        await one.close()
        await other.close()


async def test_a_transaction_that_the_others_do_not_take_is_not_here_either(tmp_path: Path) -> None:
    store = Store(tmp_path / "one.db", Clock())
    store.replicated = True
    await store.open(check=False)

    async def ship(data: bytes) -> int:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, "no")

    store.ship = ship
    try:
        await refused(ErrorCode.NOT_CONTROLLER, store.submit([put_setting("a", "1")]))
        assert "a" not in await store.read(load_settings)
        store.ship = None
        await refused(ErrorCode.NOT_CONTROLLER, store.submit([put_setting("a", "1")]))
        assert "a" not in await store.read(load_settings)
    finally:
        await store.close()


def test_changes_of_topics_are_told_from_others() -> None:
    assert touch_topics([('INSERT INTO "topics" VALUES (?)', [["t"]])])
    assert touch_topics([("", [[]])])
    assert not touch_topics([("DELETE FROM group_members WHERE group_id = ?", [["topics"]])])


HOSTILE = [
    [("INSERT INTO users (name, created_ms) VALUES (?, ?)", [["mallory", 1]])],
    [("CREATE TRIGGER t AFTER INSERT ON topics BEGIN DELETE FROM acls; END", [[]])],
    [("WITH RECURSIVE n(x) AS (SELECT ? UNION ALL SELECT x + 1 FROM n) DELETE FROM topics", [[1]])],
    [("ATTACH DATABASE ? AS other", [["other.db"]])],
    (1, [("users.put/1", [["mallory", 1]]), ("users.put/2", [["mallory", 1]])]),
    (1, [("users.put/1", [["mallory"]])]),
]


@pytest.mark.parametrize(
    "changes", HOSTILE, ids=["insert", "trigger", "recursive", "attach", "name", "count"]
)
async def test_a_follower_executes_nothing_that_it_does_not_know(
    two: Brokers, changes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader is a rogue: it commits what no broker writes, and continues with changes that are good."""
    leader, follower = two[1].metadata, two[2].metadata
    assert leader is not None and follower is not None
    await until(lambda: follower._applied == two[1].partitions.info(METADATA).offsets.log_end_offset)
    before, applied = await tables(two[2]), follower._applied
    with caplog.at_level("ERROR"):
        assert await leader._ship(msgspec.msgpack.encode(changes)) == applied + 1
        await leader._ship(encode_changes([(sql("users.put/1"), [["alice", 1]])]))
        await until(lambda: two[2].partitions.info(METADATA).offsets.high_watermark == applied + 2)
        await until(lambda: caplog.messages, "a line in the log")
        follower.poke()
        await two[2].store.read(load_settings)
    (line,) = caplog.messages
    assert (
        f"The change at offset {applied} of __cluster_metadata-0 is not executed, and none after it" in line
    )
    assert follower._applied == applied and await tables(two[2]) == before
    await two.stop(1)
    await two[2].roles.set(METADATA, "leader")
    await until(lambda: two[2].replicas.get(METADATA).replica.leads)  # type: ignore[union-attr]
    assert follower.serving < 0 and await tables(two[2]) == before


async def test_settings_of_brokers_are_known_to_all_of_them(two: Brokers) -> None:
    first, second = two[1], two[2]
    own = second.topics.get("t").config
    await first.broker_configs.alter("", {"log.retention.ms": "888"})
    await first.broker_configs.alter("2", {"log.segment.bytes": "5000"})
    await until(
        lambda: second.topics.get("t").config.segment_bytes == 5000, "the setting of the second broker"
    )
    assert (first.topics.get("t").config.segment_bytes, first.topics.get("t").config.retention_ms) == (
        own.segment_bytes, 888,
    )  # fmt: skip
    assert second.topics.get("t").config.retention_ms == 888
    assert second.logs.get(TopicPartition("t", 0)).config.segment_bytes == 5000
    with pytest.raises(BrokerError) as caught:
        await second.broker_configs.alter("2", {"log.retention.ms": "5"})
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert not any((await second.roles.lead_everything()).values())
    await two.serving(2)
    await second.broker_configs.alter("", {"log.retention.ms": None})
    assert second.topics.get("t").config.retention_ms == own.retention_ms
    await until(
        lambda: first.topics.get("t").config.retention_ms == own.retention_ms, "the default at the first"
    )
