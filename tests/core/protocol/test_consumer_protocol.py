"""Subscriptions and assignments, as consumers write them."""

from __future__ import annotations

from struct import pack

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from core.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    blob_version,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from core.protocol.primitives import ProtocolError

FULL = Subscription(["a", "b"], b"data", [TopicPartitions("a", [0, 2])], 4, "rack")
ASSIGNED = Assignment([TopicPartitions("a", [0, 2]), TopicPartitions("b", [])], b"data")


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_comes_back_with_what_its_version_has(version: int) -> None:
    blob = encode_subscription(FULL, version)
    assert blob_version(blob) == version
    read = decode_subscription(blob)
    assert (read.topics, read.user_data) == (["a", "b"], b"data")
    assert read.owned_partitions == (FULL.owned_partitions if version >= 1 else [])
    assert read.generation_id == (4 if version >= 2 else -1)
    assert read.rack_id == ("rack" if version >= 3 else None)


@pytest.mark.parametrize("version", range(4))
def test_kafka_python_writes_the_same_blobs(version: int) -> None:
    blob = encode_subscription(FULL, version)
    theirs = ConsumerProtocolSubscription.decode(blob)
    assert theirs.topics == FULL.topics and theirs.user_data == FULL.user_data
    assert theirs.encode(version=version) == blob
    blob = encode_assignment(ASSIGNED, version)
    assert ConsumerProtocolAssignment.decode(blob).encode(version=version) == blob
    assert decode_assignment(blob) == ASSIGNED


def test_a_newer_blob_is_read_as_the_newest_known_and_its_rest_left_alone() -> None:
    blob = pack(">h", 9) + encode_subscription(FULL)[2:] + b"something new"
    assert decode_subscription(blob) == FULL


def test_a_blob_of_early_sarama_without_owned_partitions_is_read() -> None:
    blob = pack(">h", 1) + encode_subscription(FULL, 0)[2:]
    assert decode_subscription(blob) == Subscription(["a", "b"], b"data")


def test_no_assignment_at_all_is_an_empty_one() -> None:
    assert decode_assignment(b"") == Assignment()


@pytest.mark.parametrize(
    "blob", [b"\0", b"\xff\xff\0\0\0\0", pack(">hi", 0, 5), pack(">hi", 3, -7), b"\0\0\0\0\0\1\0\1\xff"]
)
def test_a_blob_that_is_none_is_refused(blob: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(blob)
    with pytest.raises(ProtocolError):
        decode_assignment(blob)


def test_a_subscription_cut_in_version_zero_is_refused() -> None:
    blob = encode_subscription(FULL, 0)
    for end in range(len(blob)):
        with pytest.raises(ProtocolError):
            decode_subscription(blob[:end])
