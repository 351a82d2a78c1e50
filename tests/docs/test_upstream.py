"""docs/proof/upstream.md: 38 cases, and each test that they name exists; so do those of tests/upstream/suites.py."""

from __future__ import annotations

import re

from tests.broker_process import ROOT
from tests.docs.test_design import names
from tests.upstream.suites import EMBEDDED, FILES

PAGE = ROOT / "docs" / "proof" / "upstream.md"
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)


def test_each_case_has_a_row() -> None:
    assert [row[0] for row in ROWS] == [str(i) for i in range(1, 39)]


def test_each_row_names_a_test_or_says_why_there_is_none() -> None:
    missing = []
    for number, _, shown_by in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", shown_by)
        said = re.search(r"\b[Nn]ot yet\b|\bdoes not exist\b", shown_by)
        assert named or said, f"row {number} names no test"
        missing += [
            f"row {number}: {file}::{name}"
            for file, name in named
            if not (ROOT / file).is_file() or (name and name not in names(ROOT / file))
        ]
    assert missing == []


def test_the_tests_that_do_not_run_over_a_gateway_exist_and_have_a_reason() -> None:
    for test, reason in EMBEDDED.items():
        file, _, name = test.partition("::")
        assert file in FILES and name in names(ROOT / file), test
        assert len(reason) > 20, test
    assert all((ROOT / file).is_file() for file in FILES)
