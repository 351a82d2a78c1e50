"""`sluice transactions`, and the isolation level of commands that read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.app.commands.fake_gateway import FakeGateway, Reply, problem
from tests.app.commands.running import Sluice, run
from tests.broker_process import BrokerProcess

MINUTE = 60_000


@pytest.fixture
def producer(broker: BrokerProcess, topic: str) -> Producer:
    """A producer with an open transaction: one record in partition 0, after an aborted one."""
    host, port = broker.kafka_address
    made = Producer({"bootstrap.servers": f"{host}:{port}", "transactional.id": topic})
    made.init_transactions(30)
    for value, ends in (("aborted", True), ("open", False)):
        made.begin_transaction()
        made.produce(topic, value, partition=0)
        assert made.flush(30) == 0
        if ends:
            made.abort_transaction(30)
    return made


def test_an_open_transaction_is_listed_described_and_aborted(
    sluice: Sluice, producer: Producer, topic: str
) -> None:
    ran = sluice("transactions", "list", topic)
    ((name, state, *_, partitions),) = ran.rows
    assert (name, state, partitions) == (topic, "Ongoing", "1")
    for chosen in (["--state", "ongoing"], ["--longer-than", "0s"]):
        assert [
            one["transactional_id"] for one in sluice("transactions", "list", topic, *chosen, "--json").json
        ] == [topic]
    for chosen in (["--state", "empty"], ["--longer-than", "1h"], ["--producer-id", "987654"]):
        assert sluice("transactions", "list", topic, *chosen).rows == []
    assert "not a duration" in sluice("transactions", "list", "--longer-than", "x", code=2).err
    described = sluice("transactions", "describe", topic)
    assert described.lines[0] == f"Transactional id {topic}"
    assert ["partitions", f"{topic}[0]"] in [line.split() for line in described.lines]
    assert "expires" in described.out
    held = "Open transactions hold up 1 offset of partition 0."
    assert held in sluice("topics", "describe", topic).lines
    assert sluice("transactions", "find-hanging", "-t", topic).out == "No hanging transactions.\n"
    assert "no terminal" in sluice("transactions", "abort", topic, code=2).err
    assert sluice("transactions", "abort", topic, "--yes").out == f"The transaction of {topic} is aborted.\n"
    assert sluice("transactions", "describe", topic, "--json").json["state"] == "CompleteAbort"
    assert held not in sluice("topics", "describe", topic).lines
    assert "its state is CompleteAbort" in sluice("transactions", "abort", topic, "--yes", code=1).err
    assert "no transactional id 'nope'" in sluice("transactions", "describe", "nope", code=1).err


def test_what_is_not_committed_is_printed_if_asked_for(
    sluice: Sluice, producer: Producer, topic: str
) -> None:
    sluice("produce", topic, "-p", "0", "after")
    everything = ["aborted", "open", "after"]
    uncommitted = ["--isolation-level", "read_uncommitted"]
    # 0 aborted, 1 its marker, 2 open, 3 after.
    for begin, values in (("earliest", everything), ("0", everything), ("-1", ["after"]), ("1h", everything)):
        read = ["consume", topic, "-p", "0", "--from", begin]
        assert sluice(*read).lines == []
        assert sluice(*read, *uncommitted).lines == values
    group = ["consume", topic, "--group", topic]
    assert sluice(*group).lines == []
    assert sluice("consume", topic, "--group", f"{topic}-2", *uncommitted).lines == everything
    for level, end in (([], 2), (uncommitted, 4)):
        rows = sluice("offsets", "at", topic, "latest", "-p", "0", *level, "--json").json["partitions"]
        assert [(one["offset"], one["latest"]) for one in rows] == [(end, end)]
    producer.commit_transaction(30)
    assert sluice(*group).lines == ["open", "after"]


# --- hanging transactions: a broker has none, so a gateway of a test does ------------------------------------


def described(name: str, age_ms: int, first_offset: int | None) -> dict[str, Any]:
    """A transactional id with an open transaction in partition 0."""
    place = {"topic": "orders", "partition": 0, "first_offset": first_offset}
    return {
        "transactional_id": name, "state": "Ongoing", "age_ms": age_ms, "timeout_ms": MINUTE,
        "partition_details": [place],
    }  # fmt: skip


def detail(*stable: int) -> Reply:
    """A topic whose partitions have these last stable offsets."""
    partitions = [
        {"partition": number, "earliest": 0, "latest": offset, "high_watermark": 9}
        for number, offset in enumerate(stable)
    ]
    return Reply(200, {"name": "orders", "partition_details": partitions})


@pytest.fixture
def find(fake: FakeGateway) -> Iterator[Any]:
    """Runs find-hanging over topics as they are before and after, and what is open meanwhile."""

    def look(before: Reply, opened: list[dict[str, Any]], after: Reply, *options: str) -> Any:
        listing = {"items": opened, "next_page_token": None}
        fake.will_answer(before, Reply(200, listing), *(Reply(200, one) for one in opened), after)
        return run("transactions", "find-hanging", "-t", "orders", *options, url=fake.url)

    yield look
    assert fake.replies == []


def test_a_transaction_without_an_id_hangs(find: Any) -> None:
    (found,) = find(detail(4, 9), [], detail(4, 9), "--json").json
    assert found == {
        "topic": "orders", "partition": 0, "last_stable_offset": 4, "high_watermark": 9,
        "transactional_id": None, "age_ms": None,
    }  # fmt: skip
    ran = find(detail(4), [], detail(4))
    assert ran.rows[0] == ["orders", "0", "4", "9", "-", "-"] and "1 partition held up" in ran.out


@pytest.mark.parametrize(
    ("age", "first", "hanging"),
    [
        (6 * MINUTE, 4, []),
        (6 * MINUTE + 1, 4, ["x"]),
        # The log begins after its first record.
        (7 * MINUTE, 2, ["x"]),
        # It holds up nothing: another one does, which no id has.
        (7 * MINUTE, 5, [None]),
        (7 * MINUTE, None, [None]),
    ],
)
def test_a_transaction_hangs_long_after_its_time(
    find: Any, age: int, first: int | None, hanging: list[str | None]
) -> None:
    found = find(detail(4), [described("x", age, first)], detail(4), "--json").json
    assert [one["transactional_id"] for one in found] == hanging


def test_a_transaction_that_ends_meanwhile_does_not_hang(find: Any) -> None:
    assert find(detail(4), [], detail(6)).out == "No hanging transactions.\n"
    assert find(detail(4), [], detail(9), "--json").json == []


def test_what_was_aborted_before_a_refusal_is_told(fake: FakeGateway) -> None:
    fake.will_answer(Reply(204, b""), problem(409, "invalid-txn-state", "No transaction of 'b' is open."))
    ran = run("transactions", "abort", "a", "b", "--yes", url=fake.url, code=1)
    assert "Aborted before that: a." in ran.err
    assert [request[:2] for request in fake.requests] == [
        ("DELETE", "/api/v1/transactions/a"),
        ("DELETE", "/api/v1/transactions/b"),
    ]
