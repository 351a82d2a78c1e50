"""`python -m bench compare`: a short turn of one load against Sluice and a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.compare import MARKS, main


def test_both_brokers_are_loaded_in_turn_and_the_ratio_is_written_into_the_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text(f"before\n{MARKS[0]}an old table\n{MARKS[1]}\nafter\n")
    chosen = ("--short", "--loads", "start", "round_trip", "--against", "kafka")
    assert main([*chosen, "--markdown", str(page), "--json", str(kept)]) == 0
    found = json.loads(kept.read_text())
    for server in ("sluice", "kafka"):
        (start,), (p50,) = (found["samples"][server][name] for name in ("start.seconds", "round_trip.p50"))
        assert start > 0
        # Microseconds of a record that went to the broker and came back: not zero, and no timeout.
        assert 10 < p50 < 5_000_000
    printed = capsys.readouterr().out
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    assert rows[0] == ["| what", "unit", "Sluice", "Kafka", "ratio", "target |"]
    ours, theirs, ratio = map(float, rows[-1][2:5])
    assert ratio == pytest.approx(ours / theirs, rel=0.02)
    assert found["about"]["kafka"] in printed
    text = page.read_text()
    assert text.startswith(f"before\n{MARKS[0]}Measured {found['about']['date']}")
    assert text.endswith(f"|\n{MARKS[1]}\nafter\n")
    assert "an old table" not in text
