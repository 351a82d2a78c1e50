"""Tables and fences of the reference pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with one line for each row."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell(text) for text in line)} |\n" for line in lines)


def cell(text: str) -> str:
    """Return text as one cell: no line ends, and no bar that would end it."""
    return " ".join(text.split()).replace("|", "\\|")


def fence(text: str) -> str:
    """Return text between fences."""
    return f"```\n{text.strip()}\n```\n"
