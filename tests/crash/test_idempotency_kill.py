"""Writers with an Idempotency-Key against a broker that is killed: each of their requests is written once."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess

TOPIC = "kill"
PARTITIONS = 3
WRITERS = 4
KILLS = 4


def call(
    broker: BrokerProcess, method: str, path: str, body: Any = None, key: str | None = None
) -> tuple[Any, bool]:
    """(the answer, whether it is a replay)."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{broker.http}/api/v1{path}", data, method=method)
    request.add_header("content-type", "application/json")
    if key is not None:
        request.add_header("idempotency-key", key)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read()), "idempotent-replayed" in answer.headers


class Writer(threading.Thread):
    """Sends requests one after the other, each again and again until it is answered."""

    def __init__(self, broker: BrokerProcess, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.broker, self.number, self.stop = broker, number, stop
        self.answers: dict[str, Any] = {}
        self.repeated = 0
        self.replayed = 0
        self.failure: str | None = None

    def run(self) -> None:
        """Write until it is told to stop, and then finish the last request."""
        turn = 0
        while not self.stop.is_set():
            key = f"w{self.number}-{turn}"
            turn += 1
            records = [{"key": f"{key}-{i}", "value": f"{key}-{i}"} for i in range(6)]
            first = True
            while (answer := self._send(key, records)) is None:
                self.repeated += first
                first = False
                time.sleep(0.02)
                if self.failure is not None:
                    return
            self.answers[key] = answer

    def _send(self, key: str, records: list[dict[str, str]]) -> Any:
        try:
            answer, replayed = call(
                self.broker, "POST", f"/topics/{TOPIC}/records", {"records": records}, key
            )
            self.replayed += replayed
            return answer
        except urllib.error.HTTPError as error:
            if error.code not in (409, 503):
                self.failure = f"{key}: {error.code} {error.read()!r}"
        except (OSError, ValueError):
            pass
        return None


def everything(broker: BrokerProcess) -> dict[tuple[int, int], str]:
    """(partition, offset) → value of all records."""
    found = {}
    for partition in range(PARTITIONS):
        offset, caught_up = 0, False
        while not caught_up:
            page, _ = call(
                broker, "GET", f"/topics/{TOPIC}/partitions/{partition}/records?offset={offset}&limit=10000"
            )
            found.update({(partition, r["offset"]): r["value"] for r in page["records"]})
            offset, caught_up = page["next_offset"], page["caught_up"]
    return found


@pytest.mark.timeout(120)
def test_requests_with_a_key_are_written_once_however_often_the_broker_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        call(broker, "PUT", f"/topics/{TOPIC}", {"partitions": PARTITIONS})
        stop = threading.Event()
        writers = [Writer(broker, number, stop) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.1, 0.4))
            broker.kill()
            broker.start()
        stop.set()
        for writer in writers:
            writer.join(30)
        assert [writer.failure for writer in writers] == [None] * WRITERS
        found = everything(broker)
        values = list(found.values())
        assert len(values) == len(set(values)), "a record is a duplicate"
        expected = {}
        for writer in writers:
            for key, answer in writer.answers.items():
                for index, place in enumerate(answer["records"]):
                    expected[place["partition"], place["offset"]] = f"{key}-{index}"
        assert found == expected, "a record is missing, or another was promised"
        # A stored answer is the same after all these deaths.
        for key, answer in list(writers[0].answers.items())[:5]:
            records = [{"key": f"{key}-{i}", "value": f"{key}-{i}"} for i in range(6)]
            assert call(broker, "POST", f"/topics/{TOPIC}/records", {"records": records}, key) == (
                answer,
                True,
            )
        assert sum(writer.repeated for writer in writers) >= KILLS, "no kill hit a request"
        print(
            f"{len(expected)} records, {sum(w.repeated for w in writers)} requests repeated, "
            f"{sum(w.replayed for w in writers)} of them found written"
        )
    finally:
        broker.kill()
