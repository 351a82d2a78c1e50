"""The output of a command: tables and sentences for people, JSON for programs, progress on a terminal.

Results go to stdout, everything else (notes, progress, questions) to stderr, so that a pipe gets results alone.
Tables are never cut or wrapped: what is piped is whole. Colours are for terminals, and not where NO_COLOR is set.
"""

from __future__ import annotations

import os
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from app.commands.text import one_line, printable, width_of

T = TypeVar("T")
Cell = str | int | None
# Seconds between two updates of a progress line: as often as an eye can follow.
_PROGRESS_INTERVAL = 0.1
_NUMBER = re.compile(r"[-+]?[0-9]+")


class Output:
    """Where a command prints. `as_json` makes all results JSON."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.terminal = sys.stdout.isatty()
        self.colour = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._binary = sys.stdout.buffer
        self._progress: Progress | None = None

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        self._binary.write(data)

    def flush(self) -> None:
        """Hand over what was printed so far."""
        self._binary.flush()

    def check_reader(self) -> None:
        """Raise BrokenPipeError if the output has no reader any more; else the command would wait forever."""
        try:
            descriptor = sys.stdout.fileno()
        except (OSError, ValueError):
            return
        watch = select.poll()
        watch.register(descriptor, 0)
        if any(event & select.POLLERR for _, event in watch.poll(0)):
            raise BrokenPipeError

    def say(self, text: str = "") -> None:
        """A line for people, on stdout; UTF-8 whatever the locale says."""
        self._binary.write(printable(text).encode("utf-8", "replace") + b"\n")

    def note(self, text: str) -> None:
        """A remark on stderr."""
        if self._progress is not None:
            self._progress.clear()
        click.echo(f"sluice: {printable(text)}", err=True)

    def progress(self) -> Progress:
        """A progress line that gives way to notes."""
        self._progress = Progress()
        return self._progress

    def reading_progress(self) -> Progress:
        """The same for a command that prints continuously: only if the output is a file.

        On a terminal one sees it; and what a pipe leads to may print to the same terminal.
        """
        try:
            into_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
        except (OSError, ValueError):
            into_file = False
        self._progress = Progress(wanted=into_file)
        return self._progress

    def document(self, value: Any) -> None:
        """One JSON document, indented."""
        self._binary.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    def result(self, document: Any, text: str) -> None:
        """What a command has done: the document as JSON, else the sentence."""
        if self.as_json:
            self.document(document)
        else:
            self.say(text)

    def listing(self, document: Any, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """What a command has found: the document as JSON, else the table."""
        if self.as_json:
            self.document(document)
        else:
            self.table(columns, rows)

    def descriptions(self, documents: Sequence[T], show: Callable[[T], None]) -> None:
        """What is asked for by name: the document as JSON, a list of several; else each as `show` writes it."""
        if self.as_json:
            self.document(documents[0] if len(documents) == 1 else documents)
            return
        for index, document in enumerate(documents):
            if index:
                self.say()
            show(document)

    def json_line(self, value: Any) -> None:
        """One line of NDJSON."""
        self._binary.write(msgspec.json.encode(value) + b"\n")

    def heading(self, text: str) -> None:
        """A line that stands out where there is colour."""
        self._binary.write(self.title(one_line(text)).encode("utf-8", "replace") + b"\n")

    def clear_screen(self) -> None:
        """Begin at the top of an empty terminal."""
        self._binary.write(b"\x1b[H\x1b[2J\x1b[3J")

    def title(self, text: str) -> str:
        """A heading, bold where there is colour."""
        return click.style(text, bold=True) if self.colour else text

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Columns under their names; numbers stand to the right, nothing (None) is a dash."""
        for index, line in enumerate(table_lines(columns, rows)):
            text = self.title(line) if index == 0 else line
            self._binary.write(text.encode("utf-8", "replace") + b"\n")

    def facts(self, pairs: Iterable[tuple[str, Cell]], indent: str = "  ") -> None:
        """Names and values, one pair a line."""
        known = [(name, one_line(str(value))) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self.say(f"{indent}{name:<{width}}  {value}")


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """The lines of a table, the heading first. No line ends with blanks."""
    body = [list(row) for row in rows]
    right = [
        bool(body) and all(row[i] is None or _NUMBER.fullmatch(str(row[i])) for row in body)
        for i in range(len(columns))
    ]
    texts = [list(columns), *([_cell(value) for value in row] for row in body)]
    widths = [max(width_of(row[i]) for row in texts) for i in range(len(columns))]
    lines = []
    for row in texts:
        parts = []
        for i, text in enumerate(row):
            blanks = " " * (widths[i] - width_of(text))
            parts.append(blanks + text if right[i] else text + blanks)
        lines.append("  ".join(parts).rstrip())
    return lines


def _cell(value: Cell) -> str:
    return "-" if value is None or value == "" else one_line(str(value))


class Progress:
    """A line on stderr that tells how far long work is; silent unless stderr is a terminal."""

    def __init__(self, wanted: bool = True) -> None:
        self.shown = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = 0.0
        self._dirty = False

    def __enter__(self) -> Progress:
        self._next = time.monotonic() + _PROGRESS_INTERVAL
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def update(self, text: str) -> None:
        """Say this, unless something was said a moment ago."""
        if not self.shown or (now := time.monotonic()) < self._next:
            return
        self._next = now + _PROGRESS_INTERVAL
        self._dirty = True
        click.echo(f"\r\x1b[K{printable(text)}", nl=False, err=True)

    def clear(self) -> None:
        """Take the line away, before something else is printed."""
        if self._dirty:
            self._dirty = False
            click.echo("\r\x1b[K", nl=False, err=True)
