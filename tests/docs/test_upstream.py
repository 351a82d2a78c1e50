"""docs/proof/upstream.md: 38 cases, and each test that they name exists; so do those of tests/upstream/suites.py."""

from __future__ import annotations

from tests.broker_process import ROOT
from tests.docs.proof_rows import check, numbers, rows
from tests.docs.test_design import names
from tests.upstream.suites import EMBEDDED, FILES


def test_each_case_has_a_row() -> None:
    assert [number for number, _ in rows("upstream")] == numbers(38)


def test_each_row_names_a_test_or_says_why_there_is_none() -> None:
    check("upstream", r"\b[Nn]ot yet\b|\bdoes not exist\b")


def test_the_tests_that_do_not_run_over_a_gateway_exist_and_have_a_reason() -> None:
    for test, reason in EMBEDDED.items():
        file, _, name = test.partition("::")
        assert file in FILES and name in names(ROOT / file), test
        assert len(reason) > 20, test
    assert all((ROOT / file).is_file() for file in FILES)
