"""A job's words as a person likes them, a bar on the terminal, and as a machine does, a JSON line for each."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

import msgspec

from pipeline import limits
from pipeline.jobs.report import Outcome, Progress

BAR_CELLS = 24


def count(number: float) -> str:
    """1234567 → `1.2 M`, for people."""
    for limit, letter in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if number >= limit:
            return f"{number / (1e3 if letter == ' k' else limit):.1f}{letter}"
    return f"{number:.0f}"


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as aligned columns; numbers to the right."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [[("" if row.get(name) is None else str(row[name])) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[index]) for line in cells)) for index, name in enumerate(names)]
    right = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in names]
    lines = []
    for line in [[name.upper() for name in names], *cells]:
        padded = [
            cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _share(progress: Progress) -> float:
    """How much of what there is to do is done, from 0 to 1."""
    if progress.lag is None and progress.step:
        return progress.tasks_done / progress.tasks if progress.tasks else 0.0
    ahead = progress.total_rows + (progress.lag or 0)
    return progress.total_rows / ahead if ahead else 1.0


def _said(progress: Progress) -> str:
    """Progress in words."""
    where = f"batch {progress.batch}"
    if progress.step:
        where = f"{progress.step}  {progress.tasks_done}/{progress.tasks} tasks"
    said = f"{where}  {count(progress.total_rows)} rows  {count(progress.rows_per_second)}/s"
    if progress.lag is not None and not progress.step:
        said += f"  lag {count(progress.lag)}"
    if progress.rejected:
        said += f"  rejected {count(progress.rejected)}"
    return said


class ForPeople:
    """Notes and a bar on stderr, the outcome on stdout. The bar is drawn on a terminal only; a log gets lines."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self._err = out or sys.stdout, err or sys.stderr
        self._bar = False
        self._last_line = time.monotonic()

    def note(self, text: str) -> None:
        """A line of its own."""
        self._end_bar()
        print(text, file=self._err, flush=True)

    def progress(self, progress: Progress) -> None:
        """Move the bar, or print a line; of a step in a log its end, and a line once in a while."""
        said = _said(progress)
        if not self._err.isatty():
            if self._is_due(progress):
                print(said, file=self._err, flush=True)
            return
        share = _share(progress)
        full = int(share * BAR_CELLS)
        print(
            f"\r\x1b[K{'━' * full}{'─' * (BAR_CELLS - full)} {share:4.0%}  {said}",
            end="",
            file=self._err,
            flush=True,
        )
        self._bar = True
        if progress.step and share == 1:
            self._end_bar()

    def _is_due(self, progress: Progress) -> bool:
        now = time.monotonic()
        if progress.step and _share(progress) < 1 and now - self._last_line < limits.LOG_SECONDS:
            return False
        self._last_line = now
        return True

    def done(self, outcome: Outcome) -> None:
        """What was done, in one line, and the job's table if it has one."""
        self._end_bar()
        if outcome.table:
            print(table(outcome.table), file=self._out)
        said = [f"{outcome.job}: {outcome.rows:,} rows"]
        if outcome.files:
            said.append(f"{outcome.files:,} files, {outcome.bytes:,} bytes")
        if outcome.rejected:
            said.append(f"{outcome.rejected:,} rejected")
        if outcome.skipped:
            kind = "records" if outcome.job == "replay" else "batches"
            said.append(f"{outcome.skipped:,} {kind} were there already")
        # Of a job that did nothing but fail, the reason is all there is to say.
        if outcome.rows or outcome.files or not outcome.problems:
            print(f"{', '.join(said)}, {outcome.seconds:.1f} s", file=self._out)
        for problem in outcome.problems:
            print(problem, file=self._out)
        self._out.flush()

    def _end_bar(self) -> None:
        if self._bar:
            print(file=self._err, flush=True)
        self._bar = False


class ForMachines:
    """One JSON object per line on stdout: `type` is note, progress or done; `time` is in seconds since 1970."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def _line(self, kind: str, content: Any) -> None:
        line = {"type": kind, "time": round(time.time(), 3), **content}
        print(msgspec.json.encode(line).decode(), file=self._out, flush=True)

    def note(self, text: str) -> None:
        """{"type": "note", "text": …}"""
        self._line("note", {"text": text})

    def progress(self, progress: Progress) -> None:
        """{"type": "progress", "batch": …, "rows": …}"""
        self._line("progress", msgspec.to_builtins(progress))

    def done(self, outcome: Outcome) -> None:
        """{"type": "done", "rows": …}"""
        self._line("done", msgspec.to_builtins(outcome))
