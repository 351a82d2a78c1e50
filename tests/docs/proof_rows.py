"""Pages of docs/proof that list cases: each row names its tests, which exist, or says why there is none."""

from __future__ import annotations

import re

from tests.broker_process import ROOT
from tests.docs.test_design import names

_ROW = re.compile(r"^\| (I?\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows(page: str) -> list[tuple[str, str]]:
    """The number of each row of docs/proof/`page`.md, and what shows it."""
    text = (ROOT / "docs" / "proof" / f"{page}.md").read_text()
    return [(number, shown_by) for number, _, shown_by in _ROW.findall(text)]


def numbers(cases: int, invariants: int = 0) -> list[str]:
    """The numbers that a page must have, in order: I1, I2, …, 1, 2, …"""
    return [*(f"I{n}" for n in range(1, invariants + 1)), *(str(n) for n in range(1, cases + 1))]


def check(page: str, otherwise: str) -> None:
    """Fail if a row names no test and has no word of `otherwise`, a pattern, or names a test that does not exist."""
    missing = []
    for number, shown_by in rows(page):
        named = _TEST.findall(shown_by)
        assert named or re.search(otherwise, shown_by), f"row {number} names no test"
        missing += [
            f"row {number}: {file}::{name}"
            for file, name in named
            if not (ROOT / file).is_file() or (name and name not in names(ROOT / file))
        ]
    assert missing == []
