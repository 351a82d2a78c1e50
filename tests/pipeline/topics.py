"""Topics for the tests of the pipeline: made, filled and read back over one raw connection."""

from __future__ import annotations

from collections.abc import Sequence

from core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from core.records.batch import build_batch
from core.records.record import NewRecord
from tests.broker_process import BrokerProcess
from tests.clients.driver import Message
from tests.clients.wire import NOW, Wire


class Topics:
    """What a test does to topics. `options` are those that every read and write of Spark needs."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.wire = Wire(broker.kafka_address)

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    @property
    def options(self) -> dict[str, str]:
        """Where the broker is."""
        return {"kafka.bootstrap.servers": self.broker.kafka}

    def create(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Make a topic; settings with underscores for dots. Answers its name.

        Nothing is ever too old, unless a test says so: many write records with fixed times of years ago.
        """
        self.wire.create_topic(name, partitions, **{"retention_ms": "-1", **configs})
        return name

    def write(
        self, name: str, records: Sequence[NewRecord | str], *, partition: int = 0, codec: int = 0
    ) -> int:
        """Append one batch; strings are values without a key. Answers the first offset."""
        made = [NewRecord(value=one.encode()) if isinstance(one, str) else one for one in records]
        answer = self.wire.produce(
            name, bytes(build_batch(made, now_ms=NOW, codec=codec)), partition=partition
        )
        assert answer.error_code == 0, answer
        return answer.base_offset

    def fill(self, name: str, count: int, *, partitions: int = 1, batch: int = 1000, size: int = 100) -> None:
        """`count` records in each partition, values of `size` bytes that begin with partition and number."""
        for partition in range(partitions):
            for start in range(0, count, batch):
                numbers = range(start, min(start + batch, count))
                self.write(name, [f"{partition}:{n}:".ljust(size, ".") for n in numbers], partition=partition)

    def records(self, name: str, partition: int = 0) -> list[Message]:
        """Every record of a partition, read by the tests' own client."""
        return self.wire.read_all(name, partition)

    def truncate(self, name: str, before: int, partition: int = 0) -> None:
        """Delete the records of a partition below an offset."""
        topic = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition, before)])
        answer = self.wire.call(21, DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
        assert answer.topics[0].partitions[0].error_code == 0

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        answer = self.wire.call(37, CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 2)
        assert answer.results[0].error_code == 0, answer.results[0]
