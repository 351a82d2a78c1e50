"""Batches: what is repeated, what is not, and what is said when it is not known what became of one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from app.commands.client import Client
from app.commands.delivery import Delivery
from app.commands.errors import CommandError, RefusedError, UnreachableError
from app.commands.record_input import Outgoing
from tests.app.commands.fake_gateway import FakeGateway, Reply, problem

BATCH = [Outgoing(b'{"value":1}', "line 1"), Outgoing(b'{"value":2}', "line 2")]
DONE = Reply(200, {"records": [{"partition": 0, "offset": 4}, {"partition": 1, "offset": 9}]})
KAFKA = {"kafka_error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "retriable": True}


@pytest.fixture
def notes() -> list[str]:
    """What was remarked."""
    return []


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.delivery.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("app.commands.client.PATIENCE_SECONDS", 0.0)


@pytest.fixture
def client(fake: FakeGateway) -> Iterator[Client]:
    """A client of the fake gateway."""
    one = Client(fake.url)
    yield one
    one.close()


def _delivery(
    client: Client, notes: list[str], *, idempotent: bool = False, seconds: float = 5.0
) -> Delivery:
    return Delivery(
        client, "orders", acks="all", retry_seconds=seconds, idempotent=idempotent, note=notes.append
    )


def test_a_batch_is_one_request_of_ndjson(fake: FakeGateway, client: Client, notes: list[str]) -> None:
    fake.will_answer(DONE)
    delivery = _delivery(client, notes)
    delivery.send(BATCH)
    method, path, body, headers = fake.requests[0]
    assert (method, path) == ("POST", "/api/v1/topics/orders/records?acks=all")
    assert body == b'{"value":1}\n{"value":2}' and headers["content-type"] == "application/x-ndjson"
    assert "idempotency-key" not in headers
    assert delivery.written.records == 2
    assert (delivery.written.partitions[1].first_offset, delivery.written.partitions[1].last_offset) == (9, 9)


def test_a_gateway_that_is_busy_is_asked_again(fake: FakeGateway, client: Client, notes: list[str]) -> None:
    busy = problem(503, "not-ready", "Starting.")
    fake.will_answer(busy, busy, DONE)
    _delivery(client, notes).send(BATCH)
    assert len(fake.requests) == 3 and notes == ["The gateway is away; trying again."]


def test_a_gateway_that_stays_away_is_given_up(fake: FakeGateway, client: Client, notes: list[str]) -> None:
    fake.stop_listening()
    with pytest.raises(UnreachableError, match="connection refused") as caught:
        _delivery(client, notes, seconds=0.05).send(BATCH)
    assert not caught.value.sent and notes


def test_what_was_cut_off_is_not_repeated_and_is_called_uncertain(
    fake: FakeGateway, client: Client, notes: list[str]
) -> None:
    fake.will_answer(DONE, Reply(hang_up=True), DONE)
    delivery = _delivery(client, notes)
    delivery.send(BATCH)
    with pytest.raises(UnreachableError) as caught:
        delivery.send(BATCH)
    assert caught.value.hints == (
        "What was under way may or may not have been written: line 1 to line 2.",
        "Written before that: 2 records.",
    )
    assert len(fake.requests) == 2 and delivery.written.records == 2


def test_with_an_idempotency_key_it_is_repeated_under_the_same_key(
    fake: FakeGateway, client: Client, notes: list[str]
) -> None:
    late = problem(503, "not-enough-replicas-after-append", "Late.", **KAFKA)
    running = problem(409, "idempotency-key-in-use", "Still running.")
    fake.will_answer(Reply(hang_up=True), late, running, DONE, DONE)
    delivery = _delivery(client, notes, idempotent=True)
    delivery.send(BATCH)
    delivery.send(BATCH)
    keys = [headers["idempotency-key"] for _, _, _, headers in fake.requests]
    assert [a == b for a, b in pairwise(keys)] == [True, True, True, False]


def test_without_one_a_refusal_after_the_append_is_final(
    fake: FakeGateway, client: Client, notes: list[str]
) -> None:
    fake.will_answer(problem(503, "not-enough-replicas-after-append", "Late.", **KAFKA), DONE)
    with pytest.raises(RefusedError, match="Late"):
        _delivery(client, notes).send(BATCH)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "entry", [{"detail": "No.", "record": 1}, {"detail": "No.", "pointer": "#/records/1/value"}]
)
def test_a_refused_record_is_named_by_where_it_came_from(
    fake: FakeGateway, client: Client, notes: list[str], entry: dict[str, object]
) -> None:
    fake.will_answer(problem(422, "invalid-request", "Wrong.", errors=[entry]))
    with pytest.raises(RefusedError) as caught:
        _delivery(client, notes).send(BATCH)
    assert caught.value.text == "Line 2: Wrong."
    assert "Written before that: 0 records; nothing from line 1 on." in caught.value.hints


@pytest.mark.parametrize(
    "errors", [[], ["plain"], [{"record": 99}], [{"pointer": "#/records"}], [{"pointer": "#/records/x"}]]
)
def test_a_refusal_about_no_record_names_none(
    fake: FakeGateway, client: Client, notes: list[str], errors: list[object]
) -> None:
    fake.will_answer(problem(404, "unknown-topic-or-partition", "No topic.", errors=errors))
    with pytest.raises(RefusedError) as caught:
        _delivery(client, notes).send(BATCH)
    assert caught.value.text == "No topic."


def test_records_that_were_refused_among_others_are_listed(
    fake: FakeGateway, client: Client, notes: list[str]
) -> None:
    refused = {"partition": 0, "offset": None, "error": {"detail": "Too large."}}
    fake.will_answer(Reply(207, {"records": [refused] * 9 + [{"partition": 0, "offset": 3}]}))
    delivery = _delivery(client, notes)
    batch = [Outgoing(b"{}", f"line {n}") for n in range(10)]
    with pytest.raises(CommandError, match="9 records of 10") as caught:
        delivery.send(batch)
    assert caught.value.hints[0] == "line 0: Too large." and caught.value.hints[-1] == "… and 4 more"
    assert delivery.written.records == 1


def test_offsets_without_a_wait_are_not_made_up(fake: FakeGateway, client: Client, notes: list[str]) -> None:
    fake.will_answer(
        Reply(200, {"records": [{"partition": 0, "offset": -1}, {"partition": 0, "offset": None}]})
    )
    delivery = _delivery(client, notes)
    delivery.send(BATCH)
    part = delivery.written.partitions[0]
    assert (part.records, part.first_offset, part.last_offset) == (2, None, None)
