"""What a real client can do, in words that all of them share, so that one scenario runs over every client.

A driver wraps one client library or program. It adds nothing of its own: no retry, no default, no repair.
What a client cannot say at all stands in its class attributes, and scenarios are parametrised by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.broker_process import BrokerProcess

# How long one call of a client may take before the test fails.
CALL_SECONDS = 30.0


class Message(NamedTuple):
    """A record as clients see it. A timestamp of None leaves it to the client; offset −1 is not known yet."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    offset: int = -1


class GroupSeen(NamedTuple):
    """A consumer group as an admin client describes it: the partitions of one topic that each member has, sorted."""

    state: str
    members: list[list[int]]


class RefusedError(Exception):
    """The broker said no; `code` is Kafka's error number, as the client passed it on.

    None where the client, or the HTTP listener, refused it by a rule of its own that Kafka has no number for.
    """

    def __init__(self, code: int | None, message: str = "") -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


class Driver:
    """One client. Bytes in, bytes out, offsets as numbers, times in milliseconds."""

    name = ""
    #: What `CLIENTS` of tests/conftest.py calls it, where it is not installed by pip with the tests.
    installed_as = ""
    #: The newest message format that it speaks: 0 has no timestamps and no headers, 1 has no headers.
    message_format = 2
    #: What it can compress with, "none" included.
    codecs: tuple[str, ...] = ("none",)
    #: What it can read, when that is not everything that its format can be sent in; zstd comes to it as gzip.
    reads_codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    #: Whether it lets the user set a record's timestamp.
    sets_timestamps = True
    #: Whether it can write any bytes at all; text without control characters only otherwise.
    binary_safe = True
    #: Whether it can tell "" from null when it writes.
    writes_empty = True
    #: Whether it can write null as a value.
    writes_null = True
    #: Whether it can write a header whose value is null.
    writes_null_headers = True
    #: Whether it survives reading one.
    reads_null_headers = True
    #: Whether a record can have two headers of one name.
    repeats_headers = True
    #: Whether its producer is idempotent here: each batch has a producer id and a sequence.
    idempotent = False
    #: Whether it can create a topic with settings.
    creates_with_configs = True

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    @classmethod
    def sees(cls, message: Message) -> Message:
        """What of a message the client's format has; −1 is its word for no timestamp."""
        return message._replace(
            headers=message.headers if cls.message_format > 1 else (),
            timestamp=message.timestamp if cls.message_format > 0 else -1,
        )

    def close(self) -> None:
        """Release what the client holds."""

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        """Send the messages in order, as few batches as the client makes of them, acks=all."""
        raise NotImplementedError

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        """The next `count` messages from `offset` on."""
        raise NotImplementedError

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset whose timestamp is not before `timestamp`, or None."""
        raise NotImplementedError

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The earliest and the next offset."""
        raise NotImplementedError

    def choose_partition(self, topic: str, key: bytes) -> int:
        """Send one message with this key and no partition; the partition that it went to."""
        raise NotImplementedError

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create a topic; raises RefusedError."""
        raise NotImplementedError

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions."""
        raise NotImplementedError

    def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of partitions to `total`; raises RefusedError."""
        raise NotImplementedError

    def configs(self, name: str) -> dict[str, str | None]:
        """Every setting of a topic with the value in force."""
        raise NotImplementedError

    def set_config(self, name: str, key: str, value: str) -> None:
        """Change one setting of a topic; raises RefusedError."""
        raise NotImplementedError

    def delete_records(self, name: str, partition: int, before: int) -> int:
        """Delete what is before an offset (−1: all); the new earliest offset."""
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        """Delete a topic; raises RefusedError."""
        raise NotImplementedError

    def groups(self) -> list[str]:
        """The name of every group."""
        raise NotImplementedError

    def describe_group(self, group: str, topic: str) -> GroupSeen:
        """The state of a group that is there, and what its members have of a topic."""
        raise NotImplementedError

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a topic, without partitions that have none."""
        raise NotImplementedError

    def delete_group(self, group: str) -> None:
        """Delete a group; raises RefusedError."""
        raise NotImplementedError


def implements(driver: type[Driver], *methods: str) -> bool:
    """Whether a driver has these methods of its own."""
    return all(getattr(driver, method) is not getattr(Driver, method) for method in methods)
