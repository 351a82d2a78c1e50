"""The README's section about the command line, typed in as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from app.commands.lazy import COMMANDS
from tests.broker_process import ROOT, BrokerProcess

README = (ROOT / "README.md").read_text()
SECTION = README[README.index("## The command line") : README.index("## Spark")]
(LINES,) = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)

BROKER_ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


def _shell(line: str, broker: BrokerProcess, directory: Path) -> str:
    program = directory / "sluice"
    program.write_text(f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {sys.executable} -m app "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "SLUICE_URL": broker.http, "PATH": f"{directory}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_line_does_what_it_says(broker: BrokerProcess, tmp_path: Path) -> None:
    said = {line: _shell(line, broker, tmp_path) for line in LINES.splitlines()}

    def of(part: str) -> str:
        (out,) = [out for line, out in said.items() if part in line]
        return out

    assert of("topics create") == "Topic orders created, with 3 partitions.\n"
    assert of("topics describe").startswith("Topic orders\n")
    assert '17: {"total": 12.50}\n' in of("--from 2h")
    assert len(of("--group billing").splitlines()) == 2
    assert of("groups describe").startswith("Group billing\n")
    assert "--execute does it" in of("groups reset")
    assert "3 records written to orders-copy" in of("--ndjson")
    assert "nothing was deleted" in of("--dry-run")


def test_every_command_stands_there() -> None:
    for name in COMMANDS:
        assert f"sluice {name} " in LINES


def test_the_line_for_the_shell_gives_it_completion(broker: BrokerProcess, tmp_path: Path) -> None:
    script = _shell("_SLUICE_COMPLETE=bash_source sluice", broker, tmp_path)
    assert "_SLUICE_COMPLETE=bash_complete" in script and "complete" in script
