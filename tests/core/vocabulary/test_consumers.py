"""core.consumers.messages: the words of managed consumers."""

from __future__ import annotations

import msgspec
import pytest

from core.errors import ErrorCode
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import ConsumerOptions, Range, Subscription, illegal_state


@pytest.mark.parametrize(
    ("subscription", "reads", "joins"),
    [
        (Subscription(), False, False),
        (Subscription(("t",)), True, True),
        (Subscription(pattern=""), True, True),
        (Subscription(assignments=(Tp("t", 0),)), True, False),
    ],
)
def test_what_a_subscription_means(subscription: Subscription, reads: bool, joins: bool) -> None:
    assert bool(subscription) is reads and subscription.joins is joins


@pytest.mark.parametrize(
    "value",
    [
        Subscription(("a", "b")),
        Subscription(assignments=(Tp("t", 0), Tp("t", 1))),
        ConsumerOptions(start=5, settings={"format": "json"}),
        ConsumerOptions(start="latest", auto_commit=True, group_instance_id="i"),
        (Range("t", 0, 1, 2),),
    ],
)
def test_what_is_kept_comes_back_as_it_was(value: object) -> None:
    kind = tuple[Range, ...] if isinstance(value, tuple) else type(value)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
    assert back == value
    if isinstance(back, Subscription):
        assert all(isinstance(one, Tp) for one in back.assignments)


def test_an_illegal_state_carries_its_reason() -> None:
    error = illegal_state("not-assigned", "No.")
    assert (error.code, error.details) == (ErrorCode.INVALID_RECORD_STATE, {"reason": "not-assigned"})
