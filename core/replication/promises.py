"""What brokers have promised about each partition, on the disk, in one small file.

    version 0, number of lines, then `topic partition topic-id epoch complete start`

It is replaced as a whole, and fsynced before the broker answers with a promise. Waiting writers share the next write.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.replication.replica import Remembered
from core.types import TopicPartition

ROLES = "replica-roles-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
_VERSION = 0


class Promises:
    """The promises of one data directory. Touched on the event loop only; a thread writes the bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[TopicPartition, tuple[UUID, Remembered]] = {}
        self._noted = 0
        self._written = 0
        self._lock = asyncio.Lock()

    def load(self) -> None:
        """Read the file; nothing is known if there is none. Raises ValueError if it is damaged: a forgotten promise
        is worse than a broker that does not start."""
        data = files.read_whole(self._path)
        if data is not None:
            self._known = decode(data)

    def of(self, tp: TopicPartition, topic_id: UUID) -> Remembered | None:
        """What is known of a partition of the topic with this id."""
        found = self._known.get(tp)
        return found[1] if found is not None and found[0] == topic_id else None

    def note(self, tp: TopicPartition, topic_id: UUID, remembered: Remembered) -> None:
        """Change what is known, in memory; `save` makes it durable."""
        if self._known.get(tp) != (topic_id, remembered):
            self._known[tp] = (topic_id, remembered)
            self._noted += 1

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        for tp in [tp for tp in self._known if tp.topic == topic]:
            del self._known[tp]
            self._noted += 1

    async def save(self) -> None:
        """Return once everything noted so far is on the disk. Raises KAFKA_STORAGE_ERROR."""
        wanted = self._noted
        async with self._lock:
            if self._written >= wanted:
                return
            number, data = self._noted, encode(self._known)
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(None, lambda: files.write_whole(self._path, data, durable=True))
            except OSError as error:
                raise BrokerError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"The roles could not be stored ({error.strerror})."
                ) from error
            self._written = number


def encode(known: dict[TopicPartition, tuple[UUID, Remembered]]) -> bytes:
    """The file as text."""
    lines = [
        f"{tp.topic} {tp.partition} {topic_id} {one.epoch} {one.complete} {one.start}"
        for tp, (topic_id, one) in known.items()
    ]
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def decode(data: bytes) -> dict[TopicPartition, tuple[UUID, Remembered]]:
    """What the file says; ValueError if it is torn or not one."""
    lines = data.decode().split("\n")
    if len(lines) < 3 or lines[-1] or lines[0] != str(_VERSION) or int(lines[1]) != len(lines) - 3:
        raise ValueError("the roles of replicas are torn")
    known = {}
    for line in lines[2:-1]:
        topic, partition, topic_id, *numbers = line.split(" ")
        known[TopicPartition(topic, int(partition))] = (UUID(topic_id), Remembered(*map(int, numbers)))
    return known
