"""docs/guides/webhooks.md: the receiver, as a reader runs it, gets a record and verifies it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.docs.examples import BLOCKS
from tests.ports import free_ports

BROKER_OPTIONS = ("--webhook-allow", "127.0.0.1")
SECONDS = 60
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def port() -> int:
    """A port that is free."""
    return free_ports(1)[0]


@pytest.fixture
def receiver(tmp_path: Path, port: int) -> Iterator[Path]:
    """The receiver under way; its output is in a file."""
    (block,) = (one for one in BLOCKS if one.options.get("by") == "tests/docs/test_webhook_receiver.py")
    (tmp_path / "receiver.py").write_text(block.text.replace("8000", str(port)))
    output = tmp_path / "output.txt"
    with output.open("w") as file:
        environment = os.environ | {"SECRET": SECRET}
        process = subprocess.Popen(
            [sys.executable, "receiver.py"], cwd=tmp_path, stdout=file, env=environment
        )
        yield output
        process.kill()
        process.wait()


def test_the_receiver_gets_a_record_and_verifies_it(broker: BrokerProcess, receiver: Path, port: int) -> None:
    api = f"{broker.http}/api/v1"
    with httpx.Client(timeout=SECONDS) as http:
        assert http.post(f"{api}/topics/hooked/records", json={"value": {"id": 41}}).status_code == 200
        assert (
            http.put(f"{api}/queues/hooked", json={"topics": ["hooked"], "start": "earliest"}).status_code
            == 201
        )
        body = {"url": f"http://127.0.0.1:{port}/", "secret": SECRET, "retries_ms": [100]}
        made = http.put(f"{api}/queues/hooked/webhooks/shop", json=body)
        assert made.status_code == 201, made.text
        assert made.json()["secret"] is None
        end = time.monotonic() + SECONDS
        while not receiver.read_text().strip():
            assert time.monotonic() < end, http.get(f"{api}/queues/hooked/webhooks/shop/attempts").text
            time.sleep(0.05)
        assert receiver.read_text() == "0 {'id': 41}\n"
