"""Reading as a member of a group: what is printed is committed, what is not comes again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.app.commands.running import Sluice, Spawn, lines_of
from tests.broker_process import ROOT, BrokerProcess

# A first member is not kept waiting for a second.


@pytest.fixture
def filled(sluice: Sluice, topic: str) -> str:
    """A topic with the numbers 0 to 29, ten in each partition."""
    for partition in range(3):
        sluice("produce", topic, "-p", str(partition), *(str(10 * partition + n) for n in range(10)))
    return topic


def _lag(sluice: Sluice, group: str) -> int:
    lag: int = sluice("groups", "lag", group, "--json").json["total_lag"]
    return lag


def test_a_group_reads_everything_once(sluice: Sluice, filled: str) -> None:
    assert sorted(sluice("consume", filled, "-g", filled).lines, key=int) == [str(n) for n in range(30)]
    assert _lag(sluice, filled) == 0
    assert sluice("consume", filled, "--group", filled).lines == []
    assert sluice("groups", "describe", filled, "--json").json["members"] == []


def test_a_limit_commits_no_more_than_was_printed(sluice: Sluice, filled: str) -> None:
    first = sluice("consume", filled, "-g", filled, "-n", "7").lines
    assert len(first) == 7 and _lag(sluice, filled) <= 23
    rest = sluice("consume", filled, "-g", filled, "--json").lines
    values = [str(json.loads(line)["value"]) for line in rest]
    assert sorted(first + values, key=int) == [str(n) for n in range(30)]


def test_from_is_where_a_group_begins_that_has_committed_nothing(sluice: Sluice, filled: str) -> None:
    assert sluice("consume", filled, "-g", filled, "--from", "latest").lines == []
    assert sluice("consume", filled, "-g", filled, "--from", "1h", "-n", "30").lines != []
    assert sluice("consume", filled, "-g", filled, "--from", "earliest").lines == []


@pytest.mark.parametrize(
    "arguments",
    [["--from", "5"], ["--from", "-5"], ["-p", "0"], ["-k", "x"], ["--cursor", "x"], ["-H", "a=b"]],
)
def test_a_member_cannot_choose_its_records(sluice: Sluice, filled: str, arguments: list[str]) -> None:
    assert sluice("consume", filled, "-g", filled, *arguments, code=2).out == ""


def test_a_misspelt_topic_is_refused_and_not_created(sluice: Sluice, filled: str) -> None:
    assert "Did you mean" in sluice("consume", filled + "x", "-g", "g", code=1).err
    assert sluice("topics", "describe", filled + "x", code=1).out == ""


def test_following_shares_and_leaves_at_ctrl_c(spawn: Spawn, sluice: Sluice, filled: str) -> None:
    first = spawn("consume", filled, "-g", filled, "--follow", "--json")
    assert len(lines_of(first, 30)) == 30
    sluice("produce", filled, "-p", "0", "more")
    assert json.loads(lines_of(first, 1)[0])["value"] == "more"
    first.send_signal(signal.SIGINT)
    assert first.communicate(timeout=20) == (b"", b"") and first.returncode == 0
    assert _lag(sluice, filled) == 0
    assert sluice("groups", "describe", filled, "--json").json["members"] == []


def test_a_restart_of_the_gateway_is_waited_for(
    spawn: Spawn, sluice: Sluice, broker: BrokerProcess, filled: str
) -> None:
    process = spawn("consume", filled, "-g", filled, "--follow")
    assert len(lines_of(process, 30)) == 30
    broker.kill()
    broker.start()
    sluice("produce", filled, "-p", "2", "after")
    assert lines_of(process, 1) == [b"after"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0 and b"Trying again." in err
    assert _lag(sluice, filled) == 0


@pytest.mark.slow
def test_what_was_not_read_is_not_committed(broker: BrokerProcess, sluice: Sluice, filled: str) -> None:
    sluice("produce", filled, "-p", "0", given="x" * 1000 + "\n" * 400)
    shell = f"set -o pipefail; {sys.executable} -m app consume {filled} -g {filled} -n 100 | exec 0<&-"
    environment = {**os.environ, "SLUICE_URL": broker.http}
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, env=environment, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(sluice("consume", filled, "-g", filled).lines) == 430
