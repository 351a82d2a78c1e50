"""Fetch and ListOffsets to the letter: waiting, limits, sessions, bounds, times."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from core.errors import ErrorCode
from core.protocol.messages.fetch import FetchResponse, ForgottenTopic
from core.records.batch import batches
from tests.broker_process import BrokerProcess
from tests.clients.wire import FETCH, NOW, Wire, batch, fetch_request


@pytest.fixture
def topic(wire: Wire) -> str:
    """A topic of this test's own, with one partition."""
    name = f"topic-{uuid.uuid4().hex}"
    wire.create_topic(name)
    return name


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[Wire]:
    """A second connection."""
    with Wire(broker.kafka_address) as connection:
        yield connection


# --- waiting -----------------------------------------------------------------------------------------------


def test_an_empty_answer_comes_after_max_wait(wire: Wire, topic: str) -> None:
    start = time.monotonic()
    found = wire.fetch_partition(topic, max_wait_ms=300)
    assert 0.29 <= time.monotonic() - start < 2
    assert (found.error_code, bytes(found.records or b"")) == (0, b"")


def test_a_fetch_that_does_not_wait_is_answered_at_once(wire: Wire, topic: str) -> None:
    start = time.monotonic()
    wire.fetch_partition(topic, max_wait_ms=0)
    wire.fetch_partition(topic, max_wait_ms=10_000, min_bytes=0)
    assert time.monotonic() - start < 1


def test_an_append_wakes_the_one_that_waits(wire: Wire, other: Wire, topic: str) -> None:
    sent = wire.send(FETCH, 12, fetch_request([(topic, 0, 0)], max_wait_ms=20_000))
    time.sleep(0.05)
    start = time.monotonic()
    other.produce(topic, batch([b"here"]))
    correlation_id, answer = wire.receive(FETCH, 12)
    assert time.monotonic() - start < 2
    assert correlation_id == sent
    assert len(answer.responses[0].partitions[0].records) > 0


def test_min_bytes_waits_for_enough(wire: Wire, other: Wire, topic: str) -> None:
    wire.send(FETCH, 12, fetch_request([(topic, 0, 0)], max_wait_ms=20_000, min_bytes=2_000))
    other.produce(topic, batch([b"x" * 1000]))
    assert wire.is_silent(0.3)
    other.produce(topic, batch([b"x" * 1000]))
    _, answer = wire.receive(FETCH, 12)
    assert len(list(batches(bytes(answer.responses[0].partitions[0].records)))) == 2


def test_min_bytes_gives_what_there_is_at_the_deadline(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch([b"x" * 1000]))
    start = time.monotonic()
    found = wire.fetch_partition(topic, max_wait_ms=300, min_bytes=100_000)
    assert 0.29 <= time.monotonic() - start < 2
    assert len(found.records) > 1000


def test_an_error_does_not_wait(wire: Wire, topic: str) -> None:
    start = time.monotonic()
    request = fetch_request([(topic, 0, 0), ("no-such-topic", 0, 0)], max_wait_ms=20_000)
    answer = wire.call(FETCH, request)
    assert time.monotonic() - start < 2
    codes = {one.topic: one.partitions[0].error_code for one in answer.responses}
    assert codes == {topic: 0, "no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_topic_deleted_under_a_long_poll_ends_it(wire: Wire, other: Wire, topic: str) -> None:
    from core.protocol.messages.delete_topics import DeleteTopicsRequest

    wire.send(FETCH, 12, fetch_request([(topic, 0, 0)], max_wait_ms=20_000))
    time.sleep(0.05)
    other.call(20, DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    start = time.monotonic()
    _, answer = wire.receive(FETCH, 12)
    assert time.monotonic() - start < 5
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- limits ------------------------------------------------------------------------------------------------


def test_the_first_batch_is_sent_whole_however_small_the_limit(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch([b"x" * 5000]))
    wire.produce(topic, batch([b"x" * 5000]))
    found = wire.fetch_partition(topic, partition_max_bytes=1, max_bytes=1)
    assert [header.base_offset for _, header in batches(bytes(found.records))] == [0]


def test_a_partition_gives_no_more_than_its_limit(wire: Wire, topic: str) -> None:
    for _ in range(10):
        wire.produce(topic, batch([b"x" * 1000]))
    found = bytes(wire.fetch_partition(topic, partition_max_bytes=3500).records)
    assert len(found) <= 3500
    assert len(found) >= 3000


def test_max_bytes_holds_over_all_partitions(wire: Wire) -> None:
    wire.create_topic("wide", partitions=5)
    for partition in range(5):
        wire.produce("wide", batch([b"x" * 10_000]), partition=partition)
    answer = wire.call(FETCH, fetch_request([("wide", p, 0) for p in range(5)], max_bytes=25_000))
    sizes = [len(one.partitions[0].records or b"") for one in answer.responses]
    assert 10_000 <= sum(sizes) <= 31_000
    assert sizes[0] > 10_000


def test_an_offset_inside_a_batch_gets_the_whole_batch(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch([b"a"] * 10))
    wire.produce(topic, batch([b"b"] * 10))
    found = bytes(wire.fetch_partition(topic, 7).records)
    assert [header.base_offset for _, header in batches(found)] == [0, 10]


@pytest.mark.parametrize("offset", [-1, 3, 1_000_000])
def test_an_offset_out_of_range_is_told_the_range(wire: Wire, topic: str, offset: int) -> None:
    wire.produce(topic, batch([b"a", b"b"]))
    found = wire.fetch_partition(topic, offset, max_wait_ms=10_000)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire.fetch_partition(topic, 2).error_code == 0


def test_an_unknown_topic_id_is_refused(wire: Wire) -> None:
    request = fetch_request([("", 0, 0)])
    request.topics[0].topic_id = uuid.uuid4()
    answer = wire.call(FETCH, request, 13)
    codes = [answer.error_code, *(p.error_code for one in answer.responses for p in one.partitions)]
    assert ErrorCode.UNKNOWN_TOPIC_ID in codes


# --- sessions ----------------------------------------------------------------------------------------------


def _shown(answer: FetchResponse) -> dict[tuple[str, int], int]:
    return {
        (one.topic, partition.partition_index): len(partition.records or b"")
        for one in answer.responses
        for partition in one.partitions
    }


@pytest.fixture
def session(wire: Wire) -> tuple[int, str]:
    """A session over two partitions of a fresh topic: its id and the topic."""
    name = f"session-{uuid.uuid4().hex}"
    wire.create_topic(name, partitions=2)
    answer = wire.call(FETCH, fetch_request([(name, 0, 0), (name, 1, 0)], session_epoch=0))
    assert answer.error_code == 0
    assert answer.session_id != 0
    assert set(_shown(answer)) == {(name, 0), (name, 1)}
    return answer.session_id, name


def test_a_session_shows_only_what_is_new(wire: Wire, other: Wire, session: tuple[int, str]) -> None:
    number, name = session
    answer = wire.call(FETCH, fetch_request([], session_id=number, session_epoch=1))
    assert (answer.error_code, _shown(answer)) == (0, {})
    other.produce(name, batch([b"new"]), partition=1)
    answer = wire.call(FETCH, fetch_request([], session_id=number, session_epoch=2))
    assert list(_shown(answer)) == [(name, 1)]
    answer = wire.call(FETCH, fetch_request([(name, 1, 1)], session_id=number, session_epoch=3))
    assert all(size == 0 for size in _shown(answer).values())


def test_a_session_waits_like_any_fetch(wire: Wire, other: Wire, session: tuple[int, str]) -> None:
    number, name = session
    wire.send(FETCH, 12, fetch_request([], session_id=number, session_epoch=1, max_wait_ms=20_000))
    time.sleep(0.05)
    other.produce(name, batch([b"new"]), partition=0)
    _, answer = wire.receive(FETCH, 12)
    assert list(_shown(answer)) == [(name, 0)]


def test_a_forgotten_partition_is_shown_no_more(wire: Wire, other: Wire, session: tuple[int, str]) -> None:
    number, name = session
    request = fetch_request([], session_id=number, session_epoch=1)
    request.forgotten_topics_data = [ForgottenTopic(topic=name, partitions=[1])]
    wire.call(FETCH, request)
    for partition in (0, 1):
        other.produce(name, batch([b"new"]), partition=partition)
    answer = wire.call(FETCH, fetch_request([], session_id=number, session_epoch=2))
    assert list(_shown(answer)) == [(name, 0)]


def test_a_wrong_epoch_or_session_is_refused(wire: Wire, session: tuple[int, str]) -> None:
    number, _ = session
    answer = wire.call(FETCH, fetch_request([], session_id=number, session_epoch=5))
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    answer = wire.call(FETCH, fetch_request([], session_id=number ^ 0x55, session_epoch=1))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_closed_session_is_deleted(wire: Wire, session: tuple[int, str]) -> None:
    number, name = session
    answer = wire.call(FETCH, fetch_request([(name, 0, 0)], session_id=number, session_epoch=-1))
    assert (answer.error_code, answer.session_id) == (0, 0)
    answer = wire.call(FETCH, fetch_request([], session_id=number, session_epoch=1))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# --- times and bounds --------------------------------------------------------------------------------------


def test_offsets_are_listed_by_bound_and_by_time(wire: Wire, topic: str) -> None:
    for i in range(5):
        wire.produce(topic, batch([b"x"], now_ms=NOW + i * 1000))
    wire.produce(topic, batch([b"late"], now_ms=NOW - 1000))
    found = {at: wire.list_offset(topic, at) for at in (-1, -2, -3, NOW, NOW + 1, NOW + 4000, NOW + 4001)}
    offsets = {at: answer.offset for at, answer in found.items()}
    assert offsets == {-1: 6, -2: 0, -3: 4, NOW: 0, NOW + 1: 1, NOW + 4000: 4, NOW + 4001: -1}
    assert found[-3].timestamp == NOW + 4000
    assert found[NOW + 1].timestamp == NOW + 1000


@pytest.mark.parametrize("version", range(12))
def test_every_version_of_list_offsets_finds_both_ends(wire: Wire, topic: str, version: int) -> None:
    wire.produce(topic, batch([b"a", b"b"]))
    latest, earliest = (wire.list_offset(topic, at, version=version) for at in (-1, -2))
    if version == 0:
        assert (latest.old_style_offsets, earliest.old_style_offsets) == ([2], [0])
    else:
        assert (latest.offset, earliest.offset) == (2, 0)


def test_listing_an_unknown_partition_is_refused(wire: Wire, topic: str) -> None:
    assert wire.list_offset(topic, -1, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.list_offset("no-such", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
