"""What queues cost: receives and settlements of 100 records by 4 clients, memory and start with 1 M in flight.

Run `python -m bench.queues [directory]`. But for the figures over HTTP the clients call the broker in this process:
what is measured are the machine, reads of the log, and one commit for each receive and each settlement. Processor
time is that of the whole process of the broker: the writer thread of the metadata store is part of it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.http import Http, post
from bench.load import Connection
from bench.server import CORES, broker, measured_cpu
from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config
from core.records.record import NewRecord
from core.vocabulary.queues import EARLIEST, QueueSettings, Receive, Settle, Start, Verb

CLIENTS = 4
BATCH = 100
RECORDS = 200_000
IN_FLIGHT = 1_000_000
VALUE = b'{"order": 12345, "state": "new", "amount": 99.5}'


async def fill(broker: Broker, topic: str, count: int) -> None:
    """Create a topic of four partitions with records."""
    await broker.topics.create(topic, partitions=4)
    for start in range(0, count, 1_000):
        records = [NewRecord(b"%d" % n, VALUE) for n in range(start, start + 1_000)]
        await broker.records.produce(topic, records, partition=start // 1_000 % 4, acks=1)


async def work(broker: Broker, each: bool) -> int:
    """One client: receive, settle, until there is nothing; by the lease, or record by record."""
    done = 0
    while True:
        got = await broker.queues.receive("q", Receive(BATCH))
        if not got.records:
            return done
        if each:
            items = [Settle(Verb.ACCEPT, leased.receipt) for leased in got.records]
        else:
            items = [Settle(Verb.ACCEPT, lease=got.lease)]
        await broker.queues.settle("q", items)
        done += len(got.records)


async def throughput(directory: Path, *, each: bool) -> None:
    """Measure receives and settlements of 100 records by 4 clients."""
    broker = Broker(Config(data_dir=directory), Clock())
    await broker.open()
    await fill(broker, "t", RECORDS)
    await broker.queues.put("q", QueueSettings(("t",), start=Start(EARLIEST), max_in_flight=100_000))
    cpu, began = time.process_time(), time.perf_counter()
    done = sum(await asyncio.gather(*(work(broker, each) for _ in range(CLIENTS))))
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    how = "receipts" if each else "the lease"
    print(
        f"settled by {how}: {done} records, {done / seconds:,.0f} records/s, {used / done * 1e6:.1f} µs of processor "
        f"time a record, {done / used:,.0f} records a second of it"
    )
    await broker.close()


def http_work(http: Http, most: int, each: bool) -> int:
    """One client over HTTP: receive and settle, until there is nothing or `most` records are settled."""
    receive = post("/api/v1/queues/q:receive", {"max": BATCH, "wait_ms": 0})
    done = 0
    while done < most:
        status, body = http.call(receive)
        if status != 200:
            raise RuntimeError(body[:300])
        # A client in Python that read all of it would be slower than the broker: the lease is the first member.
        lease = body[: body.index(b",")].partition(b":")[2].strip(b'"').decode()
        if lease == "null":
            return done
        items = [leased["receipt"] for leased in json.loads(body)["records"]] if each else [lease]
        status, settled = http.call(post("/api/v1/queues/q:settle", {"accept": items}))
        if status != 200:
            raise RuntimeError(settled[:300])
        done += json.loads(settled)["counts"]["settled"]
    return done


def over_http(*, each: bool, rounds: int = 5, count: int = 40_000) -> None:
    """Measure the same over HTTP: clients in this process, the broker in another, the least of the rounds."""
    costs, rates = [], []
    with broker() as server:
        kafka, http = Connection(server.kafka_address), Http(server)
        kafka.create_topic("t", 4)
        kafka.close()
        value = json.loads(VALUE)
        for start in range(0, (rounds + 1) * count, 1_000):
            place = start // 1_000 % 4
            records = [
                {"partition": place, "key": str(n), "value": value} for n in range(start, start + 1_000)
            ]
            status, answer = http.call(post("/api/v1/topics/t/records?acks=1", {"records": records}))
            if status != 200:
                raise RuntimeError(answer[:300])
        http.call(post("/api/v1/queues/q:receive", {"topics": ["t"], "start": "earliest", "wait_ms": 0}))
        clients = [Http(server) for _ in range(CLIENTS)]
        with CORES.apart(server.pid), ThreadPoolExecutor(CLIENTS) as pool:
            for _ in range(rounds):
                began = time.perf_counter()
                with measured_cpu(server) as used:
                    done = sum(pool.map(lambda client: http_work(client, count // CLIENTS, each), clients))
                costs.append(used[0] / done * 1e6)
                rates.append(done / (time.perf_counter() - began))
        for client in (http, *clients):
            client.close()
    how = "receipts" if each else "the lease"
    print(
        f"over HTTP, settled by {how}: {max(rates):,.0f} records/s, {min(costs):.1f} µs of processor time of the "
        f"broker a record (rounds: {', '.join(f'{cost:.1f}' for cost in costs)}), {1e6 / min(costs):,.0f} records "
        f"a second of it; load {os.getloadavg()[0]:.1f}"
    )


async def single(directory: Path) -> None:
    """Measure one record after another."""
    broker = Broker(Config(data_dir=directory), Clock())
    await broker.open()
    await fill(broker, "t", 4_000)
    await broker.queues.put("q", QueueSettings(("t",), start=Start(EARLIEST)))
    for clients, count in ((1, 500), (16, 150)):

        async def one(count: int = count) -> None:
            for _ in range(count):
                got = await broker.queues.receive("q", Receive(1))
                await broker.queues.settle("q", [Settle(Verb.ACCEPT, lease=got.lease)])

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        seconds = time.perf_counter() - began
        print(f"one record at a time, {clients} clients: {clients * count / seconds:,.0f} records/s")
    await broker.close()


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


async def in_flight(directory: Path) -> None:
    """Measure the memory of a million records in flight."""
    broker = Broker(Config(data_dir=directory), Clock())
    await broker.open()
    await fill(broker, "t", IN_FLIGHT)
    settings = QueueSettings(("t",), start=Start(EARLIEST), max_in_flight=IN_FLIGHT, lock_ms=3_600_000)
    await broker.queues.put("q", settings)
    await broker.queues.receive("q", Receive(1))
    gc.collect()
    before = resident()
    leased = 1
    while leased < IN_FLIGHT:
        got = await broker.queues.receive("q", Receive(1_000, max_bytes=1 << 24))
        leased += len(got.records)
        del got
    gc.collect()
    print(f"{leased} in flight: {resident() - before:.1f} MiB")
    await broker.close()


async def start(directory: Path) -> None:
    """Measure a start with them, and the first receive."""
    began = time.perf_counter()
    broker = Broker(Config(data_dir=directory), Clock())
    await broker.open()
    opened = time.perf_counter() - began
    before = resident()
    await broker.queues.receive("q", Receive(1))
    first = time.perf_counter() - began - opened
    flying = sum(one.in_flight for one in broker.queues.stats("q").partitions)
    print(
        f"start: {opened:.2f} s; the first receive loads {flying} records in flight in {first:.2f} s, "
        f"{resident() - before:.1f} MiB"
    )
    await broker.close()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a step in a process of its own, so that none measures the memory of another."""
    pid = os.fork()
    if pid == 0:
        asyncio.run(work())
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)


def main() -> None:
    """Measure all of it, and print a line for each."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        root = Path(directory)
        for name in ("lease", "each", "single", "flight"):
            (root / name).mkdir()
        run(lambda: throughput(root / "lease", each=False))
        run(lambda: throughput(root / "each", each=True))
        over_http(each=False)
        over_http(each=True)
        run(lambda: single(root / "single"))
        run(lambda: in_flight(root / "flight"))
        run(lambda: start(root / "flight"))


if __name__ == "__main__":
    main()
