"""The errors of a lake sink, in words for the user of the job."""

from __future__ import annotations


class LakeError(Exception):
    """A table that cannot take this batch: another writer, other columns, offsets it already holds."""


class BadRecordError(Exception):
    """A record that does not fit the job's schema while `on_error` is `suspend`; its batch is not committed."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str, count: int = 1) -> None:
        super().__init__(f"{topic}-{partition} at offset {offset}: {reason}")
        self.topic, self.partition, self.offset = topic, partition, offset
        self.reason, self.count = reason, count
