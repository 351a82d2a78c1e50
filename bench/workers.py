"""A gateway of one worker and of two over a real Kafka: answered requests a second, processor time of the workers.

Kafka and the clients take their share of the same cores. So the rate says how far two workers scale only on a machine
with cores to spare; the processor time of a request says whether the workers hinder each other on any machine.
"""

from __future__ import annotations

import os
import re
import statistics
import time
import urllib.request
from pathlib import Path

from bench.case import Figure, case, median_of
from bench.http import Http, get, post, posting
from bench.server import cpu_ns
from bench.upstream import cluster, gateway, json_records
from tests.gateway_process import GatewayProcess
from tests.peers.kafka import KafkaProcess

SECONDS = 2.0
# Connections of each of two processes: the system spreads them over the workers as chance has it.
CONNECTIONS = 24
# The rate of one worker in that of two, at most; asked where Kafka and the clients have cores of their own.
MOST, ENOUGH_CORES = 1 / 1.8, 6
READY_SECONDS = 60.0
_UP = re.compile(r'^sluice_worker_up\{worker="\d+"\} 1', re.MULTILINE)
REQUESTS = {
    "POST of one record": post("/api/v1/topics/bench/records", {"records": json_records(1)}),
    "GET of 10 records": get("/api/v1/topics/bench/partitions/0/records?offset=0&limit=10"),
}


def _processes(server: GatewayProcess, workers: int) -> list[int]:
    """The processes that answer; waits until all do."""
    if workers == 1:
        return [server.pid]
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{server.http}/metrics", timeout=60) as answer:
            if len(_UP.findall(answer.read().decode())) == workers:
                children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
                return [int(one) for one in children.split()]
        time.sleep(0.1)
    raise TimeoutError(f"{workers} workers are not ready:\n{server.read_log()[-4000:]}")


def _turn(kafka: KafkaProcess, workers: int, request: bytes) -> tuple[float, float]:
    """(answered requests a second, processor µs of all workers for each)."""
    with gateway(kafka, "--workers", str(workers)) as server:
        pids = _processes(server, workers)
        http = Http(server)
        http.call(post("/api/v1/topics/bench/records", {"records": json_records(10)}))
        http.close()
        port = server.ports["http"]
        with posting(port, request, CONNECTIONS) as first, posting(port, request, CONNECTIONS) as second:
            time.sleep(SECONDS / 4)
            begin, before = time.perf_counter(), first.value + second.value
            used = sum(cpu_ns(pid) for pid in pids)
            time.sleep(SECONDS)
            answered = first.value + second.value - before
            took = time.perf_counter() - begin
            used = sum(cpu_ns(pid) for pid in pids) - used
    return answered / took, used / 1000 / answered


@case
def workers(repeats: int) -> list[Figure]:
    """A gateway of one worker and of two over a real Kafka: requests/s, and processor time of each, in turn."""
    figures = []
    with cluster() as kafka:
        for what, request in REQUESTS.items():
            turns = [(_turn(kafka, 1, request), _turn(kafka, 2, request)) for _ in range(min(repeats, 5))]
            one, two = ([turn[at][0] for turn in turns] for at in (0, 1))
            ratios = [single / double for single, double in zip(one, two, strict=True)]
            cost = [turn[0][1] for turn in turns]
            dearer = [both[1] / single[1] for single, both in turns]
            target = MOST if (os.cpu_count() or 1) >= ENOUGH_CORES else None
            figures += [
                median_of(f"gateway: {what}, one worker", one, "requests/s"),
                median_of("  two workers", two, "requests/s", floor=statistics.median(one)),
                median_of("  the rate of one in that of two", ratios, "x", target),
                median_of("  one worker, CPU", cost, "µs/request"),
                median_of("  CPU of two workers for a request, in that of one", dearer, "x"),
            ]
    return figures
