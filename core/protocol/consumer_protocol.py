"""What consumers put into JoinGroup and SyncGroup: subscriptions and assignments (protocol type "consumer").

    blob    int16 version, then the message of that version, never flexible

To the broker these are opaque; they are read to show them to people, to know which topics a group uses, and
to assign for members that cannot. Versions 0 to 3 are known (KIP-429 owned partitions, KIP-792 generation,
KIP-881 rack). A newer version is read as 3, and bytes after the end are left alone: both is how Java's client
meets the future. Early sarama wrote version 1 without owned partitions, so a version that does not fit is
tried as the one before.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Annotated, TypeVar

from core.protocol.codec import decode_struct, encode_struct
from core.protocol.primitives import ProtocolError
from core.protocol.schema import F, Int32, Message

NEWEST = 3

_VERSION = Layout(">h")


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class Subscription(Message):
    """What a member wants to consume, and what it owned in the generation before."""

    topics: Annotated[list[str], F("0+")] = []
    user_data: Annotated[bytes | None, F("0+", nullable="0+")] = None
    owned_partitions: Annotated[list[TopicPartitions], F("1+")] = []
    generation_id: Annotated[Int32, F("2+")] = -1
    rack_id: Annotated[str | None, F("3+", nullable="3+")] = None


class Assignment(Message):
    """The partitions that a member consumes."""

    assigned_partitions: Annotated[list[TopicPartitions], F("0+")] = []
    user_data: Annotated[bytes | None, F("0+", nullable="0+")] = None


_Blob = TypeVar("_Blob", Subscription, Assignment)


def blob_version(blob: bytes) -> int:
    """The version that a blob says it has."""
    if len(blob) < _VERSION.size:
        raise ProtocolError(f"consumer protocol: {len(blob)} bytes, needs 2 for the version")
    (version,) = _VERSION.unpack_from(blob)
    if version < 0:
        raise ProtocolError(f"consumer protocol: version {version}")
    return int(version)


def decode_subscription(blob: bytes) -> Subscription:
    """The subscription in a member's metadata. Raises ProtocolError."""
    return _decode(Subscription, blob)


def encode_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """Metadata for JoinGroup. What the version lacks is left out."""
    return _VERSION.pack(version) + encode_struct(version, subscription)


def decode_assignment(blob: bytes) -> Assignment:
    """The assignment that a member got; nothing at all is an empty one. Raises ProtocolError."""
    return _decode(Assignment, blob) if blob else Assignment()


def encode_assignment(assignment: Assignment, version: int = NEWEST) -> bytes:
    """An assignment for SyncGroup."""
    return _VERSION.pack(version) + encode_struct(version, assignment)


def _decode(message: type[_Blob], blob: bytes) -> _Blob:
    version = min(blob_version(blob), NEWEST)
    while True:
        try:
            decoded = decode_struct(message, version, blob, _VERSION.size, whole=False)
        except ProtocolError:
            if version == 0:
                raise
            version -= 1
        else:
            assert isinstance(decoded, message)
            return decoded
