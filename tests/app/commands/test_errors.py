"""What a refusal looks like: a line or two, in the words of the problem document."""

from __future__ import annotations

import pytest

from app.commands.errors import CommandError, InputError, RefusedError, UnreachableError


def _shown(error: CommandError, capsys: pytest.CaptureFixture[str]) -> list[str]:
    error.show()
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_each_kind_has_its_exit_code() -> None:
    assert CommandError("x").exit_code == 1
    assert RefusedError({}, 404).exit_code == 1
    assert InputError("x").exit_code == 2
    assert UnreachableError("x", sent=False).exit_code == 3


def test_a_refusal_is_its_detail_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = RefusedError({"type": "/problems/non-empty-group", "detail": "The group has members."}, 409)
    first, second = _shown(error, capsys)
    assert first == "sluice: The group has members."
    assert second.startswith("  Stop its consumers first")


def test_errors_that_say_more_are_shown_and_those_that_repeat_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entries = [{"detail": "It has 3."}, {"detail": "It has 3."}, {"detail": "Wrong"}, "plain"]
    error = RefusedError({"detail": "Wrong shape.", "errors": entries}, 422)
    assert _shown(error, capsys) == ["sluice: Wrong shape.", "  It has 3.", "  plain"]


def test_many_errors_are_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    error = RefusedError({"detail": "All wrong.", "errors": [{"detail": f"no {n}"} for n in range(50)]}, 422)
    lines = _shown(error, capsys)
    assert len(lines) == 7 and lines[-1] == "  … and 45 more"


def test_a_document_without_words_still_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    assert _shown(RefusedError({}, 418), capsys) == ["sluice: HTTP 418"]
    assert _shown(RefusedError({"title": "Teapot", "errors": 5}, 418), capsys) == ["sluice: Teapot"]


def test_no_answer_can_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    error = RefusedError({"detail": "\x1b[2Jgone"}, 400, "\x07hint")
    assert _shown(error, capsys) == ["sluice: \\x1b[2Jgone", "  \\x07hint"]
