"""The bench runs as one command, prints a table with ratios, and keeps its figures as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import bench.__main__ as command
from bench.case import CASES, Figure
from bench.compare import Comparison, insert, table
from bench.compare_loads import LOADS
from bench.for_tests import MARKS, Start
from bench.for_tests import table as table_of_starts
from bench.plot import _curves
from tests.broker_process import ROOT


def run(monkeypatch: pytest.MonkeyPatch, results: Path, *arguments: str) -> int:
    monkeypatch.setattr(command, "RESULTS", results)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    return command.main()


@pytest.mark.slow
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


def test_another_server_is_asked_only_what_it_can_answer(
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


ABOUT = {
    "date": "2026-01-02", "runs": 3, "short": False, "cores": 2, "others": 0.25, "quiet": False, "sluice": "abc",
    "kafka": "4.1.1", "java": "17", "librdkafka": "2", "python": "3.11", "system": "Linux",
}  # fmt: skip


def compared(ours: list[float], kafkas: list[float], **about: object) -> Comparison:
    found = Comparison(["sluice", "kafka"], ["java_producer"], about=ABOUT | about)
    for server, cpu in (("sluice", ours), ("kafka", kafkas)):
        for seconds in cpu:
            found.add(server, "java_producer", {"cpu": seconds, "rate": 10.0})
    return found


def test_a_comparison_shows_medians_their_spread_and_the_ratios_of_each_run() -> None:
    # Run by run 2, 1.5 and 1; a ratio of the medians would be 6 / 4 as well, one of the extremes would not.
    text = table(compared([8.0, 6.0, 2.0], [4.0, 4.0, 2.0]))
    row = next(line for line in text.splitlines() if "Java producer" in line)
    assert row.split(" | ")[1:] == [
        "s/GB ↓",
        "6 (2–8)",
        "4 (2–4)",
        "1.5 (1–2)",
        "≤ 1.2 × Kafka, **missed** |",
    ]
    assert "on a machine that others loaded (2 cores, of which other processes used 25%" in text


def test_the_target_of_a_comparison_is_that_of_the_median_and_a_short_one_is_not_judged() -> None:
    cpu, rate = LOADS["java_producer"].lines
    met = compared([1.0, 1.0, 9.0], [1.0, 1.0, 1.0])
    assert met.verdict("java_producer.cpu", cpu) == ("≤ 1.2 × Kafka, met", False)
    assert met.verdict("java_producer.rate", rate) == ("≥ 1 × Kafka, met", False)
    short = compared([9.0], [1.0], short=True)
    assert short.verdict("java_producer.cpu", cpu) == ("≤ 1.2 × Kafka", False)
    assert "no figures to go by" in table(short)


def test_a_page_without_the_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks\n")
    with pytest.raises(ValueError, match="write them where the table belongs"):
        insert(page, "a table")
    assert page.read_text() == "no marks\n"


def test_the_ways_to_have_a_kafka_in_a_test_become_a_table_in_their_page(tmp_path: Path) -> None:
    starts = {
        "one": [Start(0.5, 0.75, 0.5, 60.0), Start(0.25, 1.0, 0.5, 62.0)],
        "a mock": [Start(0.001, 0.002, 0.001)] * 2,
    }
    text = table_of_starts(starts, 0.25)
    assert "| one | 0.38 (0.25 to 0.5) | 0.88 (0.75 to 1) | 0.5 (0.5 to 0.5) | 61 |\n" in text
    assert (
        "| a mock | 0.001 (0.001 to 0.001) | 0.002 (0.002 to 0.002) | 0.001 (0.001 to 0.001) | – |\n" in text
    )
    assert "2 runs in turn" in text and "other processes used 25%" in text
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "guides" / "your-tests.md").read_text())
    insert(page, text, MARKS)
    insert(page, text, MARKS)
    assert page.read_text().count(text) == 1
