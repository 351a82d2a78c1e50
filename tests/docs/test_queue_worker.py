"""docs/guides/queues.md: the worker in the shell, as a reader runs it: it accepts, retries, and rejects."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.docs.examples import BLOCKS

pytestmark = pytest.mark.client("curl")
SECONDS = 60
# Fails the first time for each record, then succeeds; what says "never" is rejected.
SEND = """#!/bin/sh
record=$(cat)
printf '%s\\n' "$record" >> seen.txt
case $record in
  *'"value":"never"'*) exit 65 ;;
  *'"delivery_count":1,'*) exit 1 ;;
esac
"""


@pytest.fixture
def topic() -> str:
    """A name of this file alone."""
    return "shell-worker"


@pytest.fixture
def worker(broker: BrokerProcess, tmp_path: Path, topic: str) -> Iterator[Path]:
    """The worker of the guide under way in a directory, with a queue of the name of the topic."""
    (block,) = (one for one in BLOCKS if one.options.get("by") == "tests/docs/test_queue_worker.py")
    script = re.sub(r"http://127\.0\.0\.1:8082", broker.http, block.text)
    (tmp_path / "worker.sh").write_text(script)
    (tmp_path / "send.sh").write_text(SEND)
    (tmp_path / "send.sh").chmod(0o755)
    process = subprocess.Popen(
        ["sh", "worker.sh", topic, "./send.sh"],
        cwd=tmp_path,
        start_new_session=True,
    )
    yield tmp_path
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stats(url: str) -> dict[str, Any]:
    """The counts of a queue."""
    found: dict[str, Any] = httpx.get(f"{url}/stats", timeout=SECONDS).json()
    return found


@pytest.fixture
def queue(broker: BrokerProcess, topic: str) -> str:
    """A queue that gives a record up when a worker rejects it; returns its address."""
    url = f"{broker.http}/api/v1/queues/{topic}"
    wanted = {"topics": [topic], "start": "earliest", "dead_letter": {"topic": f"{topic}-dead"}}
    assert httpx.put(url, json=wanted, timeout=SECONDS).status_code == 201
    return url


def test_the_worker_of_the_guide_accepts_retries_and_rejects(
    broker: BrokerProcess, topic: str, queue: str, worker: Path
) -> None:
    values = ["one", "never", 'say "receipt":"x"', "two", "a  b\\c"]
    body = {"records": [{"value": one} for one in values]}
    written = httpx.post(f"{broker.http}/api/v1/topics/{topic}/records", json=body, timeout=SECONDS)
    assert written.status_code == 200
    deadline = time.monotonic() + SECONDS
    while (counts := stats(queue))["totals"].get("accepted", 0) < 4 or counts["in_flight"]:
        assert time.monotonic() < deadline, counts
        time.sleep(0.1)
    assert counts["available"] == counts["delayed"] == 0
    # Four records were delivered two times, and the one that cannot be sent once.
    assert {name: counts["totals"].get(name) for name in ("delivered", "released", "rejected")} == {
        "delivered": 9, "released": 4, "rejected": 1,
    }  # fmt: skip
    assert len((worker / "seen.txt").read_text().splitlines()) == 9
    dead = f"{broker.http}/api/v1/topics/{topic}-dead/records"
    while not (records := httpx.get(dead, timeout=SECONDS).json().get("records")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [one["value"] for one in records] == ["never"]
