"""A broker for tests: by the command for any language, by the pytest plugin for Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import pytest

from pytest_sluice import Sluice, start_sluice
from tests.broker_process import ROOT

pytestmark = pytest.mark.slow

SERVE = (sys.executable, "-m", "app", "serve", "--ephemeral")
# Ample for a machine that is shared.
PATIENCE = 30.0


def ended(pid: int) -> bool:
    """Whether a process has ended; waits for it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def directory_of(pid: int) -> Path:
    """The data directory of a broker, by a file that it has open."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = Path(os.readlink(link))
        if target.name.endswith(".db") and target.parent.name == "data":
            return target.parent.parent
    raise AssertionError("the broker has no database open")


def test_it_prints_its_addresses_and_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(SERVE, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["pid"] == process.pid
        assert told["listeners"] == [told["http_url"], f"kafka://{told['kafka_bootstrap_servers']}"]
        url = f"{told['http_url']}/api/v1/topics/t/records"
        urllib.request.urlopen(urllib.request.Request(url, b"hello"), timeout=PATIENCE).close()
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            assert json.load(answer)["records"][0]["value"] == "hello"
        directory = directory_of(process.pid)
        assert directory.is_dir()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert not directory.exists()


def test_it_ends_with_the_process_that_started_it() -> None:
    program = textwrap.dedent(
        f"""
        import os, subprocess
        broker = subprocess.Popen({SERVE!r}, stdout=subprocess.PIPE, text=True)
        print(broker.stdout.readline(), flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=PATIENCE
    )
    told = json.loads(done.stdout)
    assert ended(told["pid"])


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--data-dir", "d"], "leave --data-dir out"), (["--log-level", "loud"], "must be one of")],
)
def test_what_cannot_be_is_one_line(options: list[str], said: str) -> None:
    done = subprocess.run([*SERVE, *options], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_many_brokers_at_once_are_apart() -> None:
    with (
        start_sluice() as one,
        start_sluice(["--listener", "kafka://127.0.0.1:0", "--listener", "http://127.0.0.1:0"]) as two,
    ):
        assert one.create_topic("t") == two.create_topic("t") == "t"
        assert one.http_url != two.http_url
        with pytest.raises(RuntimeError, match=r"The topic t was not created: .*409"):
            one.create_topic("t", partitions=2)


def test_the_fixtures_serve_other_peoples_tests(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(
        textwrap.dedent(
            """
            from confluent_kafka import Producer
            import httpx

            SEEN = []

            def test_write(sluice, sluice_topic):
                producer = Producer({"bootstrap.servers": sluice.kafka_bootstrap_servers})
                producer.produce(sluice_topic, b"hello")
                assert producer.flush(30) == 0
                read = httpx.get(f"{sluice.http_url}/api/v1/topics/{sluice_topic}/records").json()
                assert [record["value"] for record in read["records"]] == ["hello"]
                SEEN.append((sluice, sluice_topic))

            def test_again(sluice, sluice_topic, create_topic):
                assert SEEN[0][0] is sluice and SEEN[0][1] != sluice_topic
                create_topic("mine", partitions=3, configs={"retention.ms": "5"})
                found = httpx.get(f"{sluice.http_url}/api/v1/topics/mine").json()
                assert found["partitions"] == 3
                print(f"broker {sluice.pid}.")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert ended(int(done.stdout.rpartition("broker ")[2].partition(".")[0]))


def test_packages_of_the_project_under_test_do_not_hide_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("app", "core"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the package of the project')")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    with start_sluice() as broker:
        assert broker.create_topic("t") == "t"


def test_a_broker_that_does_not_start_is_told() -> None:
    with pytest.raises(RuntimeError, match="exit code 2"), start_sluice(["--log-level", "loud"]):
        pass


def test_the_object_names_its_addresses() -> None:
    with start_sluice() as broker:
        assert isinstance(broker, Sluice)
        assert broker.http_url.startswith("http://127.0.0.1:")
        assert broker.kafka_bootstrap_servers.startswith("127.0.0.1:")
