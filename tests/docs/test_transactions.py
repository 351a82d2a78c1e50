"""docs/proof/transactions.md: ten invariants and 35 cases, and each test that they name exists."""

from __future__ import annotations

import re

from tests.broker_process import ROOT
from tests.docs.test_design import names

PAGE = ROOT / "docs" / "proof" / "transactions.md"
ROWS = re.findall(r"^\| (I?\d+) \| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)


def test_each_invariant_and_each_case_has_a_row() -> None:
    assert [row[0] for row in ROWS] == [f"I{i}" for i in range(1, 11)] + [str(i) for i in range(1, 36)]


def test_each_row_names_what_shows_it_and_each_named_test_exists() -> None:
    missing = []
    for number, _, shown_by in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", shown_by)
        said = re.search(r"\bsimulation\b|\bnot yet\b", shown_by)
        assert named or said, f"row {number} names no test"
        missing += [
            f"row {number}: {file}::{name}"
            for file, name in named
            if not (ROOT / file).is_file() or (name and name not in names(ROOT / file))
        ]
    assert missing == []
