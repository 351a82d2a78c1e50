"""What a state directory knows of its jobs, read without Spark.

<state>/checkpoints/<name>/   Spark's: offsets/N is where batch N ends, commits/N says that it is done
<state>/jobs/<name>.json      ours: the job's settings, and how its last run ended
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec

Offsets = dict[str, dict[str, int]]


class LastRun(msgspec.Struct, kw_only=True):
    """The state of a job's last run: `running`, `done`, `stopped` or `failed`; times are in seconds since 1970."""

    job: str
    name: str
    settings: dict[str, Any]
    state: str = "running"
    pid: int = 0
    began: float = 0.0
    ended: float | None = None
    error: str | None = None
    rows: int = 0


class Standing(msgspec.Struct, kw_only=True):
    """The progress in a checkpoint: the newest batch that was begun, the newest that is done, and their ends."""

    begun: int = -1
    done: int = -1
    offsets: Offsets = {}
    begun_offsets: Offsets = {}


def _newest(directory: Path) -> int:
    numbers = [int(path.name) for path in directory.glob("*") if path.name.isdigit()]
    return max(numbers, default=-1)


def _read_offsets(path: Path) -> Offsets:
    """The source's offset in one file of Spark's offset log: a version, metadata, then a line per source."""
    lines = path.read_text().splitlines() if path.is_file() else []
    if len(lines) < 3 or lines[2] in ("-", ""):
        return {}
    found: Any = msgspec.json.decode(lines[2])
    return msgspec.convert(msgspec.json.decode(found) if isinstance(found, str) else found, type=Offsets)


def standing(checkpoint: Path) -> Standing:
    """Return the progress in a checkpoint directory; batch −1 if there is none."""
    begun, done = _newest(checkpoint / "offsets"), _newest(checkpoint / "commits")
    return Standing(
        begun=begun,
        done=done,
        offsets=_read_offsets(checkpoint / "offsets" / str(done)),
        begun_offsets=_read_offsets(checkpoint / "offsets" / str(begun)),
    )


def _file(state: Path, name: str) -> Path:
    return state / "jobs" / f"{name}.json"


def write_run(state: Path, run: LastRun) -> None:
    """Write the state of a job; readers never see half of it."""
    path = _file(state, run.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(run)))
    beside.replace(path)


def begin_run(state: Path, job: str, name: str, settings: dict[str, Any]) -> LastRun:
    """Note that a job runs in this process."""
    run = LastRun(job=job, name=name, settings=settings, pid=os.getpid(), began=time.time())
    write_run(state, run)
    return run


def end_run(state: Path, run: LastRun, how: str, rows: int = 0, error: str | None = None) -> None:
    """Note how it ended."""
    run.state, run.rows, run.error, run.ended = how, rows, error, time.time()
    write_run(state, run)


def runs(state: Path) -> list[LastRun]:
    """Every job that ran with this state directory, by name; `killed` if its process ended without a report."""
    found = []
    for path in sorted((state / "jobs").glob("*.json")):
        run = msgspec.json.decode(path.read_bytes(), type=LastRun)
        if run.state == "running" and not Path(f"/proc/{run.pid}").exists():
            run.state = "killed"
        found.append(run)
    return found


def checkpoint(state: Path, name: str) -> Path:
    """The directory of Spark's checkpoint of a job."""
    return state.absolute() / "checkpoints" / name
