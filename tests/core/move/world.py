"""Two brokers with Kafka ports, clients of both, and a move that is killed where a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from core.client.cluster import ClusterClient
from core.client.settings import Address, ClientSettings
from core.clock import Clock
from core.config import Config, Endpoint
from core.move.cluster import MoveCluster
from core.move.copy import Copy
from core.move.journal import Journal
from core.move.verify import Report, verify
from core.records.batch import decode_all
from core.records.record import NewRecord, Record
from core.server import Server
from core.types import TopicPartition
from core.vocabulary.records import FetchRead


class Killed(Exception):  # noqa: N818 (what happened)
    """The process of the move ends here."""


# Called with the name of a call, before and after it; raises what shall happen.
Fault = Callable[[str], None]


class FaultyCluster(MoveCluster):
    """A cluster whose calls fail where a test says."""

    def __init__(self, client: ClusterClient, fault: Fault, role: str) -> None:
        super().__init__(client)
        self._fault = fault
        self._role = role

    async def fetch(self, *args: Any, **options: Any) -> Any:
        return await self._call("fetch", super().fetch, *args, **options)

    async def produce(self, tp: TopicPartition, batch: bytes | bytearray) -> int:
        return int(await self._call("produce", super().produce, tp, batch))

    async def create_topic(self, *args: Any, **options: Any) -> None:
        await self._call("create_topic", super().create_topic, *args, **options)

    async def _call(self, name: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._fault(f"{self._role} {name}")
        answer = await call(*args, **options)
        self._fault(f"{self._role} {name} answered")
        return answer


class FaultyJournal(Journal):
    """A journal whose commits fail where a test says."""

    def __init__(self, directory: Path, fault: Fault) -> None:
        super().__init__(directory, create=True)
        self._fault = fault

    def store(self, changed: Any) -> None:
        if changed:
            self._fault("store")
        super().store(changed)
        if changed:
            self._fault("stored")


class Pair:
    """A source and a target. `async with` starts and stops them."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._stack = AsyncExitStack()
        self._moves = 0

    async def __aenter__(self) -> Pair:
        self.source = await self._start("source")
        self.target = await self._start("target")
        self.clients = [await self._client(server) for server in (self.source, self.target)]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _start(self, name: str) -> Server:
        listeners = (Endpoint("kafka", "127.0.0.1", 0),)
        server = Server(Config(data_dir=self._directory / name, listeners=listeners, **self._settings))
        await server.start()
        self._stack.push_async_callback(server.stop)
        return server

    async def _client(self, server: Server) -> ClusterClient:
        endpoint = server.endpoints[0]
        settings = ClientSettings(bootstrap=(Address(endpoint.host, endpoint.port),))
        client = ClusterClient(settings, Clock())
        await client.open()
        self._stack.push_async_callback(client.close)
        return client

    # --- the source ----------------------------------------------------------------------------------------

    async def write(self, topic: str, records: Sequence[NewRecord], partition: int = 0) -> None:
        await self.source.broker.records.produce(topic, records, partition=partition)

    # --- the move ------------------------------------------------------------------------------------------

    def work_dir(self) -> Path:
        return self._directory / f"move-{self._moves}"

    def another_move(self) -> None:
        """Use a new journal from now on."""
        self._moves += 1

    def clusters(self, fault: Fault = lambda what: None) -> tuple[MoveCluster, MoveCluster]:
        source, target = self.clients
        return FaultyCluster(source, fault, "source"), FaultyCluster(target, fault, "target")

    async def copy(
        self, fault: Fault = lambda what: None, wanted: Callable[[str], bool] = lambda name: True
    ) -> None:
        """Copy until the target has all that the source has. The journal is closed as by the end of a process."""
        source, target = self.clusters(fault)
        with FaultyJournal(self.work_dir(), fault) as journal:
            run = Copy(source, target, journal, wanted)
            await run.open()
            await run.until_caught_up()

    async def verify(self) -> Report:
        with Journal(self.work_dir(), create=False) as journal:
            return await verify(*self.clusters(), journal, lambda name: True)

    def journal(self) -> Journal:
        return Journal(self.work_dir(), create=False)

    # --- what is there -------------------------------------------------------------------------------------

    def records(self, server: Server, topic: str, partition: int = 0) -> list[Record]:
        """All records of a partition of a broker, read past its protocol."""
        tp = TopicPartition(topic, partition)
        found: list[Record] = []
        position = server.broker.partitions.offsets(tp).log_start_offset
        while position < server.broker.partitions.offsets(tp).high_watermark:
            (one,) = server.broker.partitions.fetch_now(
                [FetchRead(tp, position, 1 << 20)], max_bytes=1 << 20
            ).answers
            assert one.read is not None and one.read.slice is not None, one.error
            data = one.read.slice.read()
            found += decode_all(data, max_bytes=1 << 30, first_offset=position)
            position = found[-1].offset + 1
        return found


def contents(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """Records without their offsets."""
    return [(r.timestamp, r.key, r.value, r.headers) for r in records]
