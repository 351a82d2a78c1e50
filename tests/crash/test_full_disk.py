"""A broker process whose disk takes nothing more, and then takes it again (R6).

The disk is full by the process's own limit on file sizes (RLIMIT_FSIZE), which can be set from outside at any moment,
needs no rights, and reaches SQLite's files as well; the errno is EFBIG. ENOSPC at each single system call is tried
by `tests.crash.disk_faults`.
"""

from __future__ import annotations

import re
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.broker_process import ROOT, BrokerProcess

SECONDS = 30.0

RECORDS = "/api/v1/topics/orders/records"
FIRST = "/api/v1/topics/orders/partitions/0/records?offset=0"
OFFSETS = "/api/v1/groups/readers/offsets"


class Limited(BrokerProcess):
    """A broker that prints into a pipe, for its files may be limited; `full` and `free` are its disk."""

    full_at_start = False

    def spawn(self) -> None:
        """See `BrokerProcess.spawn`."""
        limit = "ulimit -S -f 0; " if self.full_at_start else ""
        command = ["python", "-m", "app", "serve", "--data-dir", str(self.data_dir)]
        command += ["--listener", "http://127.0.0.1:0", "--listener", "kafka://127.0.0.1:0"]
        self.process = subprocess.Popen(
            ["sh", "-c", f'{limit}exec "$@"', "sh", self.python, *command[1:]],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def wait_ready(self) -> None:
        """See `BrokerProcess.wait_ready`; the ports are read from what it prints."""
        assert self.process is not None and self.process.stdout is not None
        self.printed = ""
        for line in self.process.stdout:
            self.printed += line.decode()
            if found := re.search(r"HTTP +http://127.0.0.1:(\d+)", line.decode()):
                self.ports["http"] = int(found[1])
            if "Ctrl-C stops it" in line.decode():
                return
        raise AssertionError(self.printed)

    def limit(self, size: int) -> None:
        """The largest file that the broker may write."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def kill(self) -> None:
        """See `BrokerProcess.kill`."""
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        super().kill()

    def rest(self) -> str:
        """End the process by SIGTERM; what it printed since it was ready."""
        process = self.process
        assert process is not None and process.stdout is not None
        assert self.stop() == 0
        with process.stdout:
            return process.stdout.read().decode()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Limited]:
    made = Limited(tmp_path / "data")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def http(broker: Limited) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http, timeout=20, trust_env=False) as client:
        filled(client)
        yield client


def filled(http: httpx.Client) -> None:
    assert http.post(RECORDS, content=b"before").status_code == 200
    assert commit(http, 1).is_success


def commit(http: httpx.Client, offset: int) -> httpx.Response:
    body: Any = {"offsets": [{"topic": "orders", "partition": 0, "next_offset": offset}]}
    return http.patch(OFFSETS, json=body)


def values(http: httpx.Client) -> list[str]:
    return [record["value"] for record in http.get(FIRST).raise_for_status().json()["records"]]


def committed(http: httpx.Client) -> int:
    (offset,) = http.get(OFFSETS).raise_for_status().json()["offsets"]
    return int(offset["next_offset"])


def test_a_full_disk_refuses_and_continues_once_there_is_space(broker: Limited, http: httpx.Client) -> None:
    broker.limit(0)
    for acks in ("1", "all"):
        answer = http.post(RECORDS, params={"acks": acks}, content=b"refused")
        assert (answer.status_code, answer.json()["kafka_error"]) == (507, "KAFKA_STORAGE_ERROR")
    assert commit(http, 2).status_code in (503, 507)
    assert http.put("/api/v1/topics/refused", json={}).status_code == 507
    assert http.delete("/api/v1/topics/orders").status_code == 507
    assert (values(http), committed(http)) == (["before"], 1)
    broker.limit(resource.RLIM_INFINITY)
    assert http.post(RECORDS, content=b"after").status_code == 200
    assert commit(http, 2).is_success
    assert http.put("/api/v1/topics/made", json={}).status_code == 201
    assert (values(http), committed(http)) == (["before", "after"], 2)
    printed = broker.rest()
    assert "Traceback" not in printed and "File too large" in printed
    assert len(printed.splitlines()) < 20, printed
    broker.start()
    with httpx.Client(base_url=broker.http, timeout=20, trust_env=False) as again:
        assert (values(again), committed(again)) == (["before", "after"], 2)
        names = [topic["name"] for topic in again.get("/api/v1/topics").json()["items"]]
        assert names == ["made", "orders"]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_a_start_on_a_full_disk_comes_up_for_reading(
    broker: Limited, http: httpx.Client, stopped: bool
) -> None:
    if stopped:
        broker.rest()
    else:
        broker.kill()
    broker.full_at_start = True
    broker.start()
    with httpx.Client(base_url=broker.http, timeout=20, trust_env=False) as again:
        assert again.get("/readyz").status_code == 200
        assert (values(again), committed(again)) == (["before"], 1)
        assert again.post(RECORDS, content=b"refused").status_code == 507
        broker.limit(resource.RLIM_INFINITY)
        # After a kill the broker has to store its new leader epoch first, which it tries again every second.
        deadline = time.monotonic() + SECONDS
        while (answer := again.post(RECORDS, content=b"after")).status_code == 507 and not stopped:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.1)
        assert answer.status_code == 200
        assert commit(again, 2).is_success
        assert (values(again), committed(again)) == (["before", "after"], 2)
    assert "Traceback" not in broker.printed + broker.rest()
