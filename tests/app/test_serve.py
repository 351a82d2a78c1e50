"""The command as its users run it: a child process, its printed lines, its refusals, its stop."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.serve import announcement, run, write_listeners
from app.settings import load
from app.version import VERSION
from core.config import Config, Endpoint
from tests.broker_process import ROOT, BrokerProcess

pytestmark = pytest.mark.slow

PORTS = ("http://127.0.0.1:0", "kafka://127.0.0.1:0")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for tests that leave it running, or start it again; it gets SIGHUP, though pytest is under nohup."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield process.start()
    signal.signal(signal.SIGHUP, before)
    process.kill()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def post(broker: BrokerProcess, value: bytes) -> None:
    url = f"{broker.http}/api/v1/topics/t/records"
    urllib.request.urlopen(urllib.request.Request(url, data=value, method="POST"), timeout=30).close()


def get(url: str) -> tuple[int, bytes]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.status, answer.read()


# --- start --------------------------------------------------------------------------------------------------


def test_a_start_tells_what_listens_where_and_what_to_try(broker: BrokerProcess) -> None:
    listeners = json.loads((broker.data_dir / "listeners.json").read_text())
    assert listeners == [broker.http, f"kafka://{broker.kafka}"]
    log = broker.read_log()
    assert f"Sluice {VERSION}, data in {broker.data_dir}\n" in log
    assert f"  HTTP   {broker.http}\n" in log
    assert f"  Kafka  kafka://{broker.kafka}\n" in log
    (line,) = re.findall(r"Try: (curl .*)", log)
    done = subprocess.run(["sh", "-c", line + " -s"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["records"][0]["offset"] == 0


def test_a_start_takes_less_than_a_second_and_80_mb(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data").start()
    try:
        assert process.process is not None
        used = psutil.Process(process.pid)
        cpu = sum(used.cpu_times()[:2])
        # The time of the clock depends on what else the machine does; the processor time does not.
        assert cpu < 1.5, f"{cpu} s of processor time"
        assert used.memory_info().rss < 90e6
    finally:
        process.kill()


def test_the_data_directory_is_private(broker: BrokerProcess) -> None:
    assert broker.data_dir.stat().st_mode & 0o077 == 0


def test_every_listener_serves_the_same_broker_under_its_settings(tmp_path: Path) -> None:
    process = BrokerProcess(
        tmp_path / "data",
        options=["--listener", "http://[::1]:0"],
        environment={"SLUICE_HTTP_MAX_BODY_BYTES": "1234", "SLUICE_TYPO": "1"},
    )
    try:
        process.spawn()
        listeners = tmp_path / "data" / "listeners.json"
        until(listeners.exists)
        urls = json.loads(listeners.read_text())
        assert [re.sub(r"\d+$", "N", url) for url in urls] == [
            "http://127.0.0.1:N", "http://[::1]:N", "kafka://127.0.0.1:N",
        ]  # fmt: skip
        answers = {get(f"{url}/api/v1")[1] for url in urls[:2]}
        assert [json.loads(answer)["limits"]["body_bytes"] for answer in answers] == [1234]
        assert "SLUICE_TYPO is not a setting" in process.read_log()
    finally:
        process.kill()


# --- refused starts -----------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], data_dir: Path, *listeners: str) -> str:
    """The one line on stderr of a start that is refused."""
    config = load({}, data_dir=str(data_dir), listeners=listeners, insecure=True)
    assert run(config) == 1
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("sluice: ")
    assert captured.out == ""
    return line


@pytest.mark.parametrize("scheme", ["http", "kafka"])
def test_a_taken_port_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str) -> None:
    other = "kafka" if scheme == "http" else "http"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        assert url in refused(capsys, tmp_path / "d", url, f"{other}://127.0.0.1:0")


def test_an_address_of_another_machine_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "http://192.0.2.1:0" in refused(capsys, tmp_path / "d", "http://192.0.2.1:0")


def test_an_unknown_scheme_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "gopher://127.0.0.1:0" in refused(capsys, tmp_path / "d", "gopher://127.0.0.1:0")


def test_a_directory_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("I am no directory.")
    assert str(file) in refused(capsys, file, *PORTS)
    assert str(file) in refused(capsys, file / "below", *PORTS)


def test_a_second_process_is_refused_with_the_pid_of_the_first(broker: BrokerProcess) -> None:
    before = (broker.data_dir / "listeners.json").read_text()
    command = [sys.executable, "-m", "app", "serve", "--data-dir", str(broker.data_dir)]
    for url in PORTS:
        command += ["--listener", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("sluice: ")
    assert str(broker.data_dir) in line and str(broker.pid) in line
    assert (broker.data_dir / "listeners.json").read_text() == before
    assert get(f"{broker.http}/readyz")[0] == 200


# --- stop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_answers_waiting_polls_and_stops_cleanly(
    broker: BrokerProcess, number: signal.Signals
) -> None:
    post(broker, b"x")
    path = f"{broker.http}/api/v1/topics/t/partitions/0/records"
    end = json.loads(get(path)[1])["high_watermark"]
    answers: list[bytes] = []
    poll = threading.Thread(target=lambda: answers.append(get(f"{path}?offset={end}&wait_ms=60000")[1]))
    poll.start()
    time.sleep(0.3)
    assert broker.process is not None
    begun = time.monotonic()
    broker.process.send_signal(number)
    assert broker.process.wait(20) == 0
    assert time.monotonic() - begun < 5
    poll.join(5)
    (answer,) = answers
    assert json.loads(answer)["records"] == []
    assert "Traceback" not in broker.read_log()
    assert not (broker.data_dir / "listeners.json").exists()
    broker.process = None
    broker.start()
    page = json.loads(get(path)[1])
    assert (page["high_watermark"], page["records"][-1]["value"]) == (end, "x")


def test_an_idle_connection_does_not_hold_up_a_stop(broker: BrokerProcess) -> None:
    address = ("127.0.0.1", broker.ports["http"])
    with socket.create_connection(address) as silent, socket.create_connection(address) as used:
        used.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert used.recv(1000).startswith(b"HTTP/1.1 200")
        begun = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - begun < 5
        assert silent.recv(10) == b""
    broker.start()


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", environment={"SLUICE_DRAIN_TIMEOUT_MS": "60000"}).start()
    # A request whose body does not end keeps the first signal waiting.
    with socket.create_connection(("127.0.0.1", process.ports["http"])) as half:
        half.sendall(
            b"POST /api/v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"
        )
        time.sleep(0.2)
        assert process.process is not None
        process.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.running
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(20) == 128 + signal.SIGINT
        process.process = None


# --- the process that started it has ended ------------------------------------------------------------------


def started(tmp_path: Path, before: str = 'exec "$@"', **how: Any) -> tuple[subprocess.Popen[bytes], Path]:
    """A broker in a child process as a shell starts it by `before`, once it is there; and its directory."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "app", "serve", "--data-dir", str(data)]
    command += ["--listener", "http://127.0.0.1:0", "--listener", "kafka://127.0.0.1:0"]
    command = ["sh", "-c", before, "sh", *command]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, **how)
    until(lambda: (data / "listeners.json").exists() or process.poll() is not None)
    return process, data


def test_a_broker_whose_output_has_no_reader_any_more_stops_in_order(tmp_path: Path) -> None:
    process, data = started(tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    process.terminate()
    assert process.wait(20) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
    assert (data / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_a_broker_that_cannot_print_runs_all_the_same(tmp_path: Path, where: str) -> None:
    with (tmp_path / "log").open("wb") as log:
        process, data = started(tmp_path, f'exec "$@" {where}', stderr=log)
    process.terminate()
    assert process.wait(20) == 0
    assert (tmp_path / "log").read_bytes() == b""
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_broker_under_nohup_stays_when_its_terminal_closes(tmp_path: Path) -> None:
    process, _ = started(tmp_path, "trap '' HUP; exec \"$@\"", stdout=subprocess.DEVNULL)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.kill()
    process.wait()


# --- pieces -------------------------------------------------------------------------------------------------


def test_a_wildcard_is_reached_by_loopback() -> None:
    endpoints = [Endpoint("http", "0.0.0.0", 80), Endpoint("http", "::", 81)]
    assert [str(e.reachable) for e in endpoints] == ["http://127.0.0.1:80", "http://[::1]:81"]
    assert "curl -d 'Hello' http://127.0.0.1:80/" in announcement(Config(), endpoints)
    assert "http://127.0.0.1:80/console" in announcement(Config(), endpoints)
    assert "http://127.0.0.1:80/docs" in announcement(Config(), endpoints)
    assert "curl" not in announcement(Config(), [Endpoint("kafka", "::1", 1)])
    asking = Endpoint("http", "127.0.0.1", 80, (("auth", "basic,token"),))
    assert "curl -u NAME -d 'Hello' http://127.0.0.1:80/" in announcement(Config(), [asking])


def test_the_listeners_file_is_replaced_whole(tmp_path: Path) -> None:
    write_listeners(tmp_path, [Endpoint("http", "::1", 1)])
    write_listeners(tmp_path, [Endpoint("kafka", "::1", 2)])
    assert json.loads((tmp_path / "listeners.json").read_text()) == ["kafka://[::1]:2"]
    assert [file.name for file in tmp_path.iterdir()] == ["listeners.json"]
    assert (tmp_path / "listeners.json").stat().st_mode & 0o777 == 0o600


def test_a_listeners_file_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_listeners(tmp_path / "nowhere", [])
    assert "cannot write" in caplog.text


async def test_waiting_polls_hold_no_thread(broker: BrokerProcess) -> None:
    await asyncio.to_thread(post, broker, b"x")
    path = f"{broker.http}/api/v1/topics/t/partitions/0/records"
    end = json.loads((await asyncio.to_thread(get, path))[1])["high_watermark"]
    used = psutil.Process(broker.pid)
    before = used.num_threads()
    target = f"/api/v1/topics/t/partitions/0/records?offset={end}&wait_ms=60000"
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    polls = []
    for _ in range(200):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports["http"])
        writer.write(request.encode())
        polls.append((reader, writer))
    await asyncio.sleep(0.3)
    assert used.num_threads() <= before
    await asyncio.to_thread(post, broker, b"y")
    async with asyncio.timeout(20):
        for reader, writer in polls:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
