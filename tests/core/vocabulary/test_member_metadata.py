"""The topics in consumers' metadata, in every version, and in what is none."""

from __future__ import annotations

import pytest

from core.protocol.consumer_protocol import Subscription, encode_subscription
from core.vocabulary.member_metadata import subscribed_topics


@pytest.mark.parametrize("version", range(4))
def test_topics_are_read_in_every_version(version: int) -> None:
    blobs = [encode_subscription(Subscription(topics), version) for topics in (["a", "b"], ["b", "c"])]
    assert subscribed_topics("consumer", blobs) == {"a", "b", "c"}


def test_metadata_of_a_version_to_come_is_read_as_far_as_it_is_known() -> None:
    blob = b"\0\x63" + encode_subscription(Subscription(["a"]), 3)[2:] + b"more"
    assert subscribed_topics("consumer", [blob]) == {"a"}


@pytest.mark.parametrize(
    "blob", [b"", b"\0", b"\0\0\0\0\0\2\0\1a", b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1\0\1\xff"]
)
def test_one_unreadable_subscription_makes_the_topics_unknown(blob: bytes) -> None:
    good = encode_subscription(Subscription(["a"]), 0)
    assert subscribed_topics("consumer", [good, blob]) is None


def test_members_of_another_kind_have_no_topics() -> None:
    assert subscribed_topics("connect", [b"anything"]) is None
    assert subscribed_topics(None, []) is None


def test_no_members_want_no_topics() -> None:
    assert subscribed_topics("consumer", []) == frozenset()
