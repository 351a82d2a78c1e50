"""Tables, JSON, notes, progress: what stands where, and how."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from app.commands.output import Output, Progress, table_lines


def test_a_table_is_aligned_and_numbers_stand_to_the_right() -> None:
    assert table_lines(
        ("TOPIC", "LAG", "SIZE"), [["a", 5, "1 B"], ["longer", 1234, ""], ["b", None, None]]
    ) == [
        "TOPIC    LAG  SIZE",
        "a          5  1 B",
        "longer  1234  -",
        "b          -  -",
    ]


def test_signed_numbers_stand_to_the_right_and_words_do_not() -> None:
    assert table_lines(("CHANGE",), [["+5"], ["-1000"]]) == ["CHANGE", "    +5", " -1000"]
    assert table_lines(("CHANGE",), [["+5"], ["none"]]) == ["CHANGE", "+5", "none"]


def test_no_line_of_a_table_is_cut_wrapped_or_ends_with_blanks() -> None:
    lines = table_lines(("A", "B"), [["x" * 500, "y" * 500], ["x", "y"]])
    assert [len(line) for line in lines] == [503, 1002, 503] and all(line == line.rstrip() for line in lines)


def test_wide_and_hostile_cells_keep_the_columns() -> None:
    assert table_lines(("NAME", "N"), [["日本", 1], ["a\x1b[2J\n", 2]]) == [
        "NAME        N",
        "日本        1",
        "a\\x1b[2J\\n  2",
    ]


def test_an_empty_table_is_its_heading() -> None:
    assert table_lines(("A", "B"), []) == ["A  B"]


class _Terminal(io.TextIOWrapper):
    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_terminal = terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def bytes(self) -> bytes:
        return self.buffer.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)  # fmt: skip
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stdout = _Terminal(terminal)
    monkeypatch.setattr(sys, "stdout", stdout)
    out = Output()
    out.table(("A",), [[1]])
    out.heading("Topic")
    out.flush()
    assert (b"\x1b[" in stdout.bytes) is coloured


def test_text_is_utf8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    out = Output(as_json=True)
    out.say("ü")
    out.document({"a": "ü"})
    out.json_line(["日"])
    out.flush()
    text = stdout.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert text == 'ü\n{\n  "a": "ü"\n}\n["日"]\n'
    assert json.loads(text.partition("\n")[2].rpartition("\n[")[0]) == {"a": "ü"}


def test_facts_without_a_value_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = _Terminal(False)
    monkeypatch.setattr(sys, "stdout", stdout)
    out = Output()
    out.facts((("name", "x"), ("unknown", None), ("n", 1)))
    out.flush()
    assert stdout.bytes == b"  name  x\n  n     1\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("app.commands.output._PROGRESS_INTERVAL", 0.0)
    stderr = _Terminal(terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress() as progress:
        progress.update("10 records")
        progress.update("20\x1b records")
    assert stderr.bytes == (b"\r\x1b[K10 records\r\x1b[K20\\x1b records\r\x1b[K" if terminal else b"")


def test_a_note_takes_the_progress_line_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("app.commands.output._PROGRESS_INTERVAL", 0.0)
    monkeypatch.setattr(sys, "stdout", _Terminal(False))
    stderr = _Terminal(True)
    monkeypatch.setattr(sys, "stderr", stderr)
    out = Output()
    with out.progress() as progress:
        progress.update("working")
        out.note("away")
    assert stderr.bytes == b"\r\x1b[Kworking\r\x1b[Ksluice: away\n"


@pytest.mark.parametrize("into", ["file", "pipe"])
def test_a_command_that_prints_all_the_while_shows_progress_only_into_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, into: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", _Terminal(True))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe, (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file if into == "file" else pipe)
        assert Output().reading_progress().shown is (into == "file")


def test_a_reader_that_has_ended_is_noticed_before_something_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        out = Output()
        out.check_reader()
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            out.check_reader()
