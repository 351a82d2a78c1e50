"""The test command itself: which half a test is in, and the exit codes of tests/run.py."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import run, scratch
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


@pytest.mark.parametrize("fixture", ["spark", "spawn"])
def test_a_test_with_the_spark_session_or_a_process_of_its_own_is_slow(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fixture: str
) -> None:
    monkeypatch.setattr(request.node, "fixturenames", ["topics", fixture])
    assert is_slow(request.node)


@pytest.mark.parametrize(
    ("free", "flags", "fit"), [(4 << 30, 0, True), (1 << 30, 0, False), (8 << 30, os.ST_NOEXEC, False)]
)
def test_data_is_in_memory_only_where_there_is_space_and_programs_can_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, flags: int, fit: bool
) -> None:
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(scratch.os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    monkeypatch.setattr(scratch, "MEMORY", tmp_path)
    monkeypatch.setattr(scratch.tempfile, "tempdir", "/elsewhere")
    monkeypatch.setenv(scratch.VARIABLE, "")
    monkeypatch.delenv(scratch.VARIABLE)
    monkeypatch.setenv(scratch.DISK, "")
    monkeypatch.delenv(scratch.DISK)
    scratch.keep_in_memory()
    assert tempfile.gettempdir() == (str(tmp_path) if fit else "/elsewhere")
    assert os.environ.get(scratch.VARIABLE) == (str(tmp_path) if fit else None)
    disk = "/elsewhere" if fit else None
    assert scratch.disk_for(scratch.TESTS / "crash" / "test_kill_loop.py") == disk
    assert scratch.disk_for(scratch.TESTS / "core" / "test_clock.py") is None
    monkeypatch.setenv(scratch.VARIABLE, "/elsewhere")
    scratch.keep_in_memory()
    assert os.environ[scratch.VARIABLE] == "/elsewhere"


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
    assert calls.read_text().split() == ["-m", "pytest", "-n", "2", run.IN_ORDER, "-x", "tests/core", tests]


def test_fast_installs_no_client_and_tells_pytest(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[object] = []
    monkeypatch.setattr(run, "make_venv", installed.append)
    monkeypatch.setattr(run, "install_clients", lambda: installed.append("clients"))
    assert run.main(["--tests-only", "--fast", "0"]) == 0
    assert calls.read_text().split() == ["-m", "pytest", "-n", "2", run.IN_ORDER, "--fast", "0"]
    assert installed == [True]


def test_what_the_tests_start_is_compiled_once(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "checks", list)
    monkeypatch.setenv(run.NO_BYTECODE, "1")
    (calls.parent / "python").write_text(f"#!/bin/sh\necho ${{{run.NO_BYTECODE}-unset}} > {calls}\n")
    assert run.main([]) == 0
    assert calls.read_text() == "unset\n"


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
