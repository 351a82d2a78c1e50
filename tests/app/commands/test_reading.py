"""Streams that break off and are resumed: no record is missed, none is repeated."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from app.commands.bounds import Bounds
from app.commands.client import Client
from app.commands.errors import RefusedError, UnreachableError
from app.commands.moments import Moment
from app.commands.reading import Chunk, Reading, Wanted
from tests.app.commands.fake_gateway import FakeGateway, Reply, problem
from tests.app.commands.running import Sluice, Spawn, lines_of, until_connected
from tests.broker_process import BrokerProcess

BOUNDS = {0: Bounds(0, 100)}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.reading.FIRST_PAUSE", 0.01)


@pytest.fixture
def client(fake: FakeGateway) -> Iterator[Client]:
    """A client of the fake gateway."""
    one = Client(fake.url)
    yield one
    one.close()


def _lines(*lines: dict[str, Any], whole: bool = True) -> Reply:
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return Reply(200, body, "application/x-ndjson", declared=None if whole else len(body) + 10)


def _record(offset: int, **more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "offset": offset, "cursor": f"c{offset}", **more}


def _read(reading: Reading, begin: Moment, count: int, bounds: dict[int, Bounds] | None = None) -> list[int]:
    offsets: list[int] = []
    chunks: Iterator[Chunk] = reading.chunks(begin, None, bounds or BOUNDS)
    for chunk in chunks:
        offsets += [record.offset for record in chunk]
        if len(offsets) >= count:
            break
    return offsets


def _query(fake: FakeGateway, index: int) -> str:
    return fake.requests[index][1].partition("?")[2]


def test_a_stream_that_broke_off_continues_after_its_last_record(fake: FakeGateway, client: Client) -> None:
    notes: list[str] = []
    fake.will_answer(_lines(_record(1), _record(2), whole=False), Reply(hang_up=True), _lines(_record(3)))
    reading = Reading(client, Wanted("t", follow=True), notes.append)
    assert _read(reading, Moment("earliest"), 3) == [1, 2, 3]
    assert "from=earliest" in _query(fake, 0)
    assert "cursor=c2" in _query(fake, 1) and "cursor=c2" in _query(fake, 2)
    assert len(notes) == 1 and notes[0].endswith("Trying again.")


def test_the_end_is_held_on_to_before_the_first_record_comes(fake: FakeGateway, client: Client) -> None:
    page = Reply(200, {"records": [], "next_cursor": "here", "caught_up": True})
    fake.will_answer(page, Reply(hang_up=True), _lines(_record(7)))
    assert _read(Reading(client, Wanted("t", follow=True), lambda _: None), Moment("latest"), 1) == [7]
    assert [_query(fake, i).count("cursor=here") for i in (1, 2)] == [1, 1]


def test_a_bye_is_followed_by_a_new_connection(fake: FakeGateway, client: Client) -> None:
    notes: list[str] = []
    bye = {"bye": {"reason": "stopping", "retry_ms": 1}, "cursor": "c5"}
    fake.will_answer(_lines(_record(1), bye), _lines(_record(6)))
    assert _read(Reading(client, Wanted("t", follow=True), notes.append), Moment("earliest"), 2) == [1, 6]
    assert "cursor=c5" in _query(fake, 1) and notes == ["The gateway is stopping; connecting again."]


def test_lost_records_are_named_and_reading_continues_after_them(fake: FakeGateway, client: Client) -> None:
    notes: list[str] = []
    gone = problem(410, "offset-out-of-range", "Offsets 2 to 9 are deleted.", next_cursor="c9")
    lost = {"problem": {"detail": "A batch is broken."}, "cursor": "c11"}
    fake.will_answer(_lines(_record(1), whole=False), gone, _lines(_record(10), lost, _record(12)))
    assert _read(Reading(client, Wanted("t", follow=True), notes.append), Moment("earliest"), 3) == [
        1,
        10,
        12,
    ]
    assert "cursor=c9" in _query(fake, 2)
    assert notes[1:] == ["Offsets 2 to 9 are deleted.", "A batch is broken."]


def test_a_topic_that_is_deleted_ends_the_following(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(_lines(_record(1), whole=False), problem(404, "unknown-topic-or-partition", "No topic."))
    with pytest.raises(RefusedError, match="No topic"):
        _read(Reading(client, Wanted("t", follow=True), lambda _: None), Moment("earliest"), 2)


def test_a_gateway_that_is_not_there_at_first_is_not_waited_for(fake: FakeGateway, client: Client) -> None:
    fake.stop_listening()
    with pytest.raises(UnreachableError):
        _read(Reading(client, Wanted("t", follow=True), lambda _: None), Moment("earliest"), 1)


def test_without_following_a_break_is_a_failure(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(_lines(_record(1), whole=False))
    with pytest.raises(UnreachableError):
        _read(Reading(client, Wanted("t"), lambda _: None), Moment("earliest"), 2)


def test_without_following_what_comes_meanwhile_is_left_out(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(_lines(_record(8), _record(9), _record(10), _record(11)))
    reading = Reading(client, Wanted("t"), lambda _: None)
    assert _read(reading, Moment("earliest"), 99, {0: Bounds(0, 10)}) == [8, 9]
    assert "wait_ms=0" in _query(fake, 0)


@pytest.mark.parametrize("follow", [True, False])
def test_reading_begins_at_offsets_in_one_stream(fake: FakeGateway, client: Client, follow: bool) -> None:
    notes: list[str] = []
    fake.will_answer(_lines(_record(17), _record(18)))
    reading = Reading(client, Wanted("t", follow=follow, limit=2), notes.append)
    bounds = {0: Bounds(0, 19), 1: Bounds(20, 30), 2: Bounds(0, 5)}
    assert _read(reading, Moment("offset", 17), 2, bounds) == [17, 18]
    # What is below a start begins there anyway; what is above an end begins there.
    assert "offsets=0%3A17%2C2%3A5" in _query(fake, 0)
    assert [note.split(";")[0] for note in notes] == [
        "Partition 1 begins at offset 20", "Partition 2 ends at offset 5"
    ]  # fmt: skip


def test_some_records_before_the_end_are_counted_in_each_partition(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(_lines(_record(18)))
    reading = Reading(client, Wanted("t", limit=1), lambda _: None)
    _read(reading, Moment("back", 2), 1, {0: Bounds(0, 20), 1: Bounds(0, 1)})
    assert "offsets=0%3A18" in _query(fake, 0) and "1%3A" not in _query(fake, 0)


def test_a_limit_is_what_is_left_after_a_break(fake: FakeGateway, client: Client) -> None:
    fake.will_answer(_lines(_record(1), _record(2), whole=False), _lines(_record(3), _record(4)))
    reading = Reading(client, Wanted("t", follow=True, limit=3), lambda _: None)
    assert _read(reading, Moment("earliest"), 99) == [1, 2, 3]
    assert "limit=3" in _query(fake, 0) and "limit=1" in _query(fake, 1)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_following_survives_a_restart_of_the_gateway(
    spawn: Spawn, sluice: Sluice, broker: BrokerProcess, topic: str, how: str
) -> None:
    process = spawn("consume", topic, "--follow", "--json")
    until_connected(process)
    sluice("produce", topic, "-p", "0", "before")
    (line,) = lines_of(process, 1)
    assert json.loads(line)["value"] == "before"
    if how == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()
    broker.start()
    sluice("produce", topic, "-p", "1", "after", "later")
    assert [json.loads(line)["value"] for line in lines_of(process, 2)] == ["after", "later"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"")
    assert b"gain." in err and b"Traceback" not in err
