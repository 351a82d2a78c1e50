"""The bench runs as one command, prints a table with ratios, and keeps its figures as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import bench.__main__ as command
from bench.case import CASES, Figure
from bench.plot import _curves


def run(monkeypatch: pytest.MonkeyPatch, results: Path, *arguments: str) -> int:
    monkeypatch.setattr(command, "RESULTS", results)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    return command.main()


def test_a_case_is_one_command_with_a_table_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path, "text_produce", "machine", "alone", "--repeats", "1")
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    (file,) = tmp_path.glob("*.json")
    figures = json.loads(file.read_text())["figures"]
    assert [line.split("|")[1].strip() for line in table[2:]] == [one["what"] for one in figures]
    produce = figures[0]
    # In bare loops of the same run: a line costs more than sending it back, and less than a thousand times that.
    assert 1 < produce["in_floors"] < 1000
    assert produce["value"] > 0


def test_a_missed_target_is_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for measured, code in ((2.0, 1), (0.5, 0)):
        figures = [Figure("made up", measured, "s", target=1)]
        monkeypatch.setitem(
            CASES, "machine", CASES["machine"].__class__("machine", lambda _, f=figures: f, "")
        )
        assert run(monkeypatch, tmp_path, "machine") == code


def test_somebody_elses_server_is_asked_only_what_it_can_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="Only our own broker can be measured by: heartbeat"):
        run(monkeypatch, tmp_path, "heartbeat", "--kafka", "127.0.0.1:1")


def test_the_curve_is_read_out_of_the_figures() -> None:
    told: list[dict[str, object]] = [
        {"what": "Spark scan, local[2], 1 partition", "value": 0.5},
        {"what": "Spark scan, local[2], 8 partitions", "value": 0.25},
        {"what": "Spark scan, wire", "value": 1.0},
    ]
    assert _curves(told) == {2: {1: 2.0, 8: 4.0}}
