"""docs/design/threats.md: 43 rows, and each test that they name exists."""

from __future__ import annotations

import re

from tests.broker_process import ROOT
from tests.docs.test_design import names

PAGE = ROOT / "docs" / "design" / "threats.md"
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
NOT_YET = "Not yet"


def test_each_threat_has_a_row() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 44))


def test_each_named_test_exists() -> None:
    missing = []
    for number, _, _, tests in ROWS:
        if tests.startswith(NOT_YET):
            continue
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", tests)
        assert named, f"row {number} names no test"
        for file, name in named:
            if not (ROOT / file).is_file() or (name and name not in names(ROOT / file)):
                missing.append(f"row {number}: {file}::{name}")
    assert missing == []
