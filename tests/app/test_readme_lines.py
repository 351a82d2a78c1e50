"""The README's ten lines for netcat, typed in as they stand, against two brokers of one cluster."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import ROOT, BrokerProcess
from tests.clients.line import say
from tests.ports import free_ports

README = (ROOT / "README.md").read_text()
SECTION = README[README.index("## Lines, for people with netcat") : README.index("## The command line")]
(SESSION,) = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
STARTS = re.findall(r"^sluice serve (--data-dir (\w+) .*)$", SECTION, re.MULTILINE)
EXPORTS = re.findall(r"^export (\w+)=(\w+)$", SECTION, re.MULTILINE)
# What is typed, and what comes back: the lines behind it that begin with `# `.
ROWS = [
    (row[0], row[1:]) for row in (block.split("\n# ") for block in re.split(r"\n(?!# )", SESSION.strip()))
]
TYPING_SECONDS = 0.7

pytestmark = pytest.mark.client("netcat")


@pytest.fixture(scope="module")
def addresses() -> dict[str, str]:
    """The README's addresses → real ones."""
    written = sorted(set(re.findall(r"127\.0\.0\.1[: ]\d+", SECTION.replace("127.0.0.1 ", "127.0.0.1:"))))
    return {
        old.rsplit(":", 1)[1]: str(port) for old, port in zip(written, free_ports(len(written)), strict=True)
    }


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, addresses: dict[str, str]
) -> Iterator[dict[str, BrokerProcess]]:
    """The two brokers that the README starts, by the names of their directories."""
    directory = tmp_path_factory.mktemp("lines")
    started = {}
    for options, name in STARTS:
        ports = {m[1]: int(addresses[m[2]]) for m in re.finditer(r"(\w+)://127\.0\.0\.1:(\d+)", options)}
        peer = re.findall(r"--broker-id \d+ --peer \d+=127\.0\.0\.1:\d+", options)[0]
        peer = re.sub(r"\d+$", lambda m: addresses[m[0]], peer)
        process = started[name] = BrokerProcess(
            directory / name,
            options=peer.split(),
            environment=dict(EXPORTS),
            schemes=("text",),
        )
        process.ports = ports
        process.spawn()
    for process in started.values():
        process.wait_ready()
    yield started
    for process in started.values():
        process.kill()
        assert "Traceback" not in process.read_log()


def typed(line: str, directory: Path, addresses: dict[str, str]) -> list[str]:
    """What a line of the session prints; netcat is the one that has -N."""
    for old, new in addresses.items():
        line = re.sub(rf"127\.0\.0\.1 {old}\b", f"127.0.0.1 {new}", line)
    command = ["sh", "-c", line.replace("nc -N", "nc.openbsd -N")]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_the_ten_lines_say_what_they_are_answered(
    brokers: dict[str, BrokerProcess], addresses: dict[str, str]
) -> None:
    assert len(ROWS) == 10
    directory = brokers["one"].data_dir.parent
    # The brokers have yet to find each other.
    for _ in range(100):
        answer = say(brokers["one"].line_address, b"V1|0|CREATE|first replication_factor=2\n")
        if b"|OK|" in answer:
            break
    for line, expected in ROWS:
        # As a person would: a follower hears within half a second what is committed.
        time.sleep(TYPING_SECONDS)
        assert sorted(typed(line, directory, addresses)) == sorted(expected), line


def test_the_line_that_begins_with_printf_needs_no_second_broker(
    brokers: dict[str, BrokerProcess], addresses: dict[str, str]
) -> None:
    (line,) = re.findall(r"^printf .*HELP.*$", SECTION, re.MULTILINE)
    answers = typed(line.replace("orders", "alone"), brokers["one"].data_dir, addresses)
    assert answers[:2] == ["V1|1|OK|partition=0 offset=0 hw=1", "V1|2|OK|messages=0:created hw=1"]
    assert answers[2].startswith("V1|3|OK|commands=PRODUCE,CONSUME,JOIN")
