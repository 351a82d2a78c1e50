"""Bounds of partitions, and moments in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.commands.bounds import Bounds, bounds_of, offsets_at
from app.commands.client import Client
from app.commands.errors import CommandError
from app.commands.moments import Moment
from tests.app.commands.fake_gateway import FakeGateway, Reply

DETAIL = {
    "name": "orders",
    "partition_details": [
        {"partition": 0, "earliest": 5, "latest": 20, "high_watermark": 25, "size_bytes": 1},
        {"partition": 1, "earliest": 0, "latest": 3, "high_watermark": 3, "size_bytes": 1},
    ],
}
BOUNDS = {0: Bounds(5, 20), 1: Bounds(0, 3)}


@pytest.fixture
def client(fake: FakeGateway) -> Iterator[Client]:
    """A client of the fake gateway."""
    one = Client(fake.url)
    yield one
    one.close()


def test_bounds_are_those_of_the_wanted_partitions() -> None:
    assert bounds_of(DETAIL) == BOUNDS
    assert bounds_of(DETAIL, [1]) == {1: Bounds(0, 3)}


def test_reads_of_open_transactions_end_at_the_high_watermark() -> None:
    assert bounds_of(DETAIL, committed=False) == {0: Bounds(5, 25), 1: Bounds(0, 3)}


def test_partitions_that_are_not_there_are_named_with_those_that_are() -> None:
    with pytest.raises(CommandError, match=r"'orders' has no partition 2-3; it has 0-1\."):
        bounds_of(DETAIL, [0, 2, 3])


@pytest.mark.parametrize(
    ("moment", "offsets"),
    [
        (Moment("earliest"), {0: 5, 1: 0}), (Moment("latest"), {0: 20, 1: 3}), (Moment("offset", 7), {0: 7, 1: 7}),
        (Moment("back", 4), {0: 16, 1: 0}), (Moment("back", 0), {0: 20, 1: 3}),
    ],
)  # fmt: skip
def test_most_moments_follow_from_the_bounds(client: Client, moment: Moment, offsets: dict[int, int]) -> None:
    assert offsets_at(client, "orders", BOUNDS, moment) == offsets


def test_a_time_is_asked_for_and_one_after_all_records_is_the_end(fake: FakeGateway, client: Client) -> None:
    found = [{"partition": 0, "offset": 9}, {"partition": 1, "offset": None}]
    fake.will_answer(Reply(200, {"partitions": found}))
    assert offsets_at(client, "orders", BOUNDS, Moment("time", 1000)) == {0: 9, 1: 3}
    assert fake.requests[0][1] == "/api/v1/topics/orders/offsets?at=1000"
