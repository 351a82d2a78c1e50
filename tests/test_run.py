"""The test command itself: which half a test is in, and the exit codes of tests/run.py."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests import run
from tests.halves import SLOW, TESTS, is_slow, is_slow_directory


def test_slow_directories_are_there_and_no_other_is_slow() -> None:
    assert {name for name in SLOW if not (TESTS / name).is_dir()} == set()
    assert is_slow_directory(TESTS / "peers" / "test_kafka.py") and is_slow_directory(TESTS / "peers")
    assert not is_slow_directory(TESTS / "core" / "log") and not is_slow_directory(TESTS)


@pytest.mark.parametrize("mark", [pytest.mark.client("kcat"), pytest.mark.slow])
def test_a_marked_test_is_slow(request: pytest.FixtureRequest, mark: pytest.MarkDecorator) -> None:
    assert not is_slow(request.node)
    request.node.add_marker(mark)
    assert is_slow(request.node)


def test_a_test_with_the_spark_session_is_slow(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request.node, "fixturenames", ["topics", "spark"])
    assert is_slow(request.node)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `.venv` whose pytest exits with the code in its last argument; the file with what it was called with."""
    said = tmp_path / "said"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" > {said}\nfor last; do :; done\nexit "$last"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(run, "BIN", tmp_path)
    for name in ("install_compiler", "install_clients", "make_venv"):
        monkeypatch.setattr(run, name, lambda *_: None)
    return said


@pytest.mark.parametrize(
    ("tests", "failed_checks", "code"), [("0", [], 0), ("0", ["mypy"], 1), ("2", [], 2), ("5", ["mypy"], 5)]
)
def test_the_exit_code_is_that_of_the_tests_or_1_if_a_check_failed(
    calls: Path, monkeypatch: pytest.MonkeyPatch, tests: str, failed_checks: list[str], code: int
) -> None:
    monkeypatch.setattr(run, "checks", lambda: failed_checks)
    assert run.main(["-x", "tests/core", tests]) == code
    assert calls.read_text().split() == ["-m", "pytest", *run.SIDE_BY_SIDE, "-x", "tests/core", tests]


def test_fast_installs_no_client_and_tells_pytest(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[object] = []
    monkeypatch.setattr(run, "make_venv", installed.append)
    monkeypatch.setattr(run, "install_clients", lambda: installed.append("clients"))
    assert run.main(["--tests-only", "--fast", "0"]) == 0
    assert calls.read_text().split() == ["-m", "pytest", *run.SIDE_BY_SIDE, "--fast", "0"]
    assert installed == [True]


def test_ctrl_c_waits_for_pytest_to_clean_up_and_exits_with_130(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport pathlib, signal, sys\n"
        "stop = lambda *_: (pathlib.Path(__file__).with_name('cleaned').touch(), sys.exit(2))\n"
        "signal.signal(signal.SIGINT, stop)\nprint('running', flush=True)\nsignal.pause()\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    program = (
        "import pathlib, sys; from tests import run\n"
        f"run.BIN = pathlib.Path({str(tmp_path)!r})\n"
        "run.install_compiler = run.install_clients = lambda: None\n"
        "run.make_venv = lambda fast: None\n"
        "sys.exit(run.command(['--tests-only']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=run.ROOT, stdout=subprocess.PIPE, text=True, process_group=0
    ) as command:
        assert command.stdout is not None
        while "running" not in (line := command.stdout.readline()):
            assert line, "it ended before pytest ran"
        # A terminal sends the signal to all of the group.
        os.killpg(command.pid, signal.SIGINT)
        assert "stopped by Ctrl-C" in command.stdout.read()
    assert command.returncode == run.INTERRUPTED
    assert (tmp_path / "cleaned").exists()
