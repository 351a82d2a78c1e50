"""One record, as a reader sees it and as a writer hands it in."""

from __future__ import annotations

import msgspec

CREATE_TIME = 0
LOG_APPEND_TIME = 1
# Kafka's mark for "no timestamp": what magic 0 messages have, and what -1 on the wire means.
NO_TIMESTAMP = -1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(msgspec.Struct, gc=False):
    """A record that lies in a log. Never changed after it was read.

    `timestamp` is in milliseconds since the Unix epoch, −1 where there is none; `timestamp_type` says whose
    it is: 0 the producer's (CreateTime), 1 the broker's (LogAppendTime). A `value` of None is a tombstone.
    A header name that is not UTF-8 is read with U+FFFD in place of the bad bytes, as the Java client does.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(msgspec.Struct, gc=False):
    """A record to be written. `timestamp` None means the broker's now, `partition` None means by key."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None
