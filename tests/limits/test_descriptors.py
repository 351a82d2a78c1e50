"""A broker at the limit of its descriptors: connected clients are served, others once descriptors are free (N4)."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import time
from pathlib import Path

import psutil
import pytest

from tests.broker_process import BrokerProcess

LIMIT, TOO_MANY = 120, 200
PATH = "/api/v1/topics/t/records"


def write(connection: http.client.HTTPConnection) -> int:
    connection.request("POST", PATH, body=b"x")
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


@pytest.mark.parametrize("scheme", ["http", "kafka"])
def test_at_the_limit_of_descriptors_the_broker_continues(tmp_path: Path, scheme: str) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", broker.ports["http"], timeout=20)
    ) as early:
        assert write(early) == 200
        with contextlib.ExitStack() as crowd:
            for _ in range(TOO_MANY):
                one = crowd.enter_context(socket.socket())
                one.settimeout(10)
                one.connect(("127.0.0.1", broker.ports[scheme]))
            process = psutil.Process(broker.pid)
            before = process.cpu_times()
            time.sleep(1)
            after = process.cpu_times()
            assert process.num_fds() <= LIMIT
            assert after.user - before.user < 0.5, "it spins"
            assert write(early) == 200
        deadline = time.monotonic() + 20
        while True:
            with (
                contextlib.closing(
                    http.client.HTTPConnection("127.0.0.1", broker.ports["http"], timeout=20)
                ) as late,
                contextlib.suppress(ConnectionError),
            ):
                if write(late) == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert broker.stop() == 0
    assert "Traceback" not in broker.read_log() and len(broker.read_log().splitlines()) < 30
