"""What a state directory knows: where checkpoints are, how runs ended, and which process ended without a report."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pipeline.jobs import state


def _log(checkpoint: Path, name: str, batch: int, *lines: str) -> None:
    (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / name / str(batch)).write_text("\n".join(["v1", "{}", *lines]))


def test_a_checkpoint_stands_at_its_last_batch_that_is_done_and_tells_the_one_that_was_begun(
    tmp_path: Path,
) -> None:
    assert state.standing(tmp_path / "none") == state.Standing()
    for batch, end in ((9, 90), (10, 100), (11, 110)):
        _log(tmp_path, "offsets", batch, json.dumps({"t": {"0": end}}))
    for batch in (9, 10):
        _log(tmp_path, "commits", batch)
    # What Spark leaves beside its files is none of them.
    (tmp_path / "offsets" / ".12.crc").write_bytes(b"")
    found = state.standing(tmp_path)
    assert (found.begun, found.done) == (11, 10)
    assert (found.offsets, found.begun_offsets) == ({"t": {"0": 100}}, {"t": {"0": 110}})


def test_a_source_without_an_offset_and_one_that_is_text_in_text(tmp_path: Path) -> None:
    _log(tmp_path, "offsets", 0, "-")
    _log(tmp_path, "commits", 0)
    assert state.standing(tmp_path).offsets == {}
    _log(tmp_path, "offsets", 1, json.dumps(json.dumps({"t": {"1": 7}})))
    _log(tmp_path, "commits", 1)
    assert state.standing(tmp_path).offsets == {"t": {"1": 7}}


def test_a_run_is_noted_whole_and_a_dead_process_is_killed(tmp_path: Path) -> None:
    run = state.begin_run(tmp_path, "export", "one", {"to": "x"})
    assert [(one.name, one.state, one.pid) for one in state.runs(tmp_path)] == [
        ("one", "running", os.getpid())
    ]
    run.pid = 2**22 + 1
    state.write_run(tmp_path, run)
    assert state.runs(tmp_path)[0].state == "killed"
    state.end_run(tmp_path, run, "failed", rows=3, error="no")
    (found,) = state.runs(tmp_path)
    assert (found.state, found.rows, found.error, found.settings) == ("failed", 3, "no", {"to": "x"})
    assert found.ended is not None and found.ended >= found.began
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["one.json"]
