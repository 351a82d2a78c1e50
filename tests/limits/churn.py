"""What happens to a broker while it is soaked: steady load, and clients of every client that come and go.

Each worker is a function that runs in a thread until it is told to stop. What a client may be told when things come
and go is counted; anything else ends the soak.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
from confluent_kafka import Consumer

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire, batch
from tests.contract.clients import KafkaClient, LineClient, NativeClient

STEADY = "steady"
PARTITIONS = 4
# Records of one steady batch, and bytes of one record.
BATCH, RECORD_BYTES = 20, 200
# The steady topic is kept at a few segments, so that the disk stays flat and segments are deleted all the time.
CONFIGS = {"segment_bytes": "2000000", "retention_bytes": "6000000"}
# A pause of each worker between two rounds: about two topics and three groups come and go a second.
PAUSE_SECONDS = 0.5
RUDE = (
    b"\x00\x00\x10\x00half",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    b"\xff" * 50,
)


@dataclass
class Soak:
    """One soak: what was done, and what went wrong."""

    broker: BrokerProcess
    rate: int
    pause: float = PAUSE_SECONDS
    stop: threading.Event = field(default_factory=threading.Event)
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def worker(self, work: Callable[[Soak], None]) -> threading.Thread:
        """A thread of one worker; its failure is noted and stops all others."""

        def run() -> None:
            try:
                work(self)
            except Exception as error:
                self.failures.append(f"{work.__name__}: {type(error).__name__}: {error}")
                self.stop.set()

        return threading.Thread(target=run, name=work.__name__)


def write_steadily(soak: Soak) -> None:
    """`rate` records a second into the steady topic, half of them durable before they are answered."""
    due = time.monotonic()
    with Wire(soak.broker.kafka_address) as wire:
        turn = 0
        while not soak.stop.wait(max(0.0, due - time.monotonic())):
            due += BATCH / soak.rate
            records = batch([b"x" * RECORD_BYTES] * BATCH, now_ms=int(time.time() * 1000))
            answer = wire.produce(STEADY, records, partition=turn % PARTITIONS, acks=-1 if turn % 2 else 1)
            assert answer.error_code == 0, answer
            turn += 1
            soak.done["records"] += BATCH


def read_steadily(soak: Soak) -> None:
    """A member of a group that reads all of it and commits."""
    settings = {
        "bootstrap.servers": soak.broker.kafka, "group.id": "steady-readers", "auto.offset.reset": "earliest",
        "log_level": 0,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe([STEADY])
    while not soak.stop.is_set():
        soak.done["read"] += len(consumer.consume(500, 0.5))
    consumer.close()


def follow(soak: Soak) -> None:
    """Streams of server-sent events that are opened, read for a moment, and dropped."""
    with httpx.Client(base_url=f"{soak.broker.http}/api/v1", timeout=20, trust_env=False) as http:
        while not soak.stop.wait(soak.pause):
            accept = {"accept": "text/event-stream"}
            with http.stream(
                "GET", f"/topics/{STEADY}/records", params={"from": "latest"}, headers=accept
            ) as events:
                assert events.status_code == 200
                for number, _ in enumerate(events.iter_lines()):
                    if number > 20 or soak.stop.is_set():
                        break
            soak.done["streams"] += 1


def write_once(soak: Soak) -> None:
    """Writes over HTTP under idempotency keys, each of them twice."""
    with httpx.Client(base_url=f"{soak.broker.http}/api/v1", timeout=20, trust_env=False) as http:
        number = 0
        while not soak.stop.wait(0.1):
            number += 1
            headers = {"idempotency-key": f"key-{number}", "content-type": "application/json"}
            body = b'{"value": {"n": %d}}' % number
            answers = [
                http.post(f"/topics/{STEADY}/records", content=body, headers=headers) for _ in range(2)
            ]
            assert [answer.status_code for answer in answers] == [200, 200], answers[-1].text
            assert answers[1].headers["idempotent-replayed"] == "true"
            soak.done["keys"] += 1


def come_and_go(soak: Soak) -> None:
    """Topics and groups, by a client that connects for them: made, used, deleted."""
    number = 0
    while not soak.stop.wait(soak.pause):
        number += 1
        name, kind = f"passing-{number}", (KafkaClient, NativeClient)[number % 2]
        client = kind(soak.broker)
        client.create_topic(name, 2)
        for partition in range(2):
            client.produce(name, partition, [(b"k", b"v" * 100)] * 10)
        member = client.join(f"group-{number}", [name])
        client.heartbeat(member)
        client.commit(f"group-{number}", name, 0, 10, member)
        client.leave(member)
        client.delete_topic(name)
        client.close()
        soak.done["topics"] += 1


def consume_and_go(soak: Soak) -> None:
    """Managed consumers: made, polled, deleted with their group; and members that are simply forgotten."""
    with httpx.Client(base_url=f"{soak.broker.http}/api/v1", timeout=30, trust_env=False) as http:
        number = 0
        while not soak.stop.wait(soak.pause):
            number += 1
            group = f"/groups/managed-{number}"
            made = {"name": "one", "topics": [STEADY], "start": "earliest", "session_timeout_ms": 6000}
            http.post(f"{group}/consumers", json=made).raise_for_status()
            polled = http.post(f"{group}/consumers/one:poll", json={"limit": 50, "wait_ms": 2000})
            polled.raise_for_status()
            if ack := polled.json().get("ack"):
                http.post(f"{group}/consumers/one:ack", json={"ack": ack}).raise_for_status()
            http.delete(f"{group}/consumers/one").raise_for_status()
            if number % 4:
                http.delete(group).raise_for_status()
            soak.done["consumers"] += 1


def say_lines(soak: Soak) -> None:
    """Clients of the line protocol that join, commit and vanish without a word."""
    number = 0
    while not soak.stop.wait(soak.pause):
        number += 1
        client = LineClient(soak.broker)
        member = client.join(f"lines-{number}", [STEADY])
        client.commit(f"lines-{number}", STEADY, 0, 1, member)
        client.close()
        soak.done["lines"] += 1


def be_rude(soak: Soak) -> None:
    """Connections that send half a request, or garbage, and disconnect."""
    number = 0
    while not soak.stop.wait(soak.pause / 5):
        number += 1
        address = (soak.broker.kafka_address, ("127.0.0.1", soak.broker.ports["http"]))[number % 2]
        with socket.create_connection(address) as one:
            one.sendall(RUDE[number % len(RUDE)])
        soak.done["rude"] += 1


WORKERS: tuple[Callable[[Soak], None], ...] = (
    write_steadily, read_steadily, follow, write_once, come_and_go, consume_and_go, say_lines, be_rude,
)  # fmt: skip
