"""docs/proof/transactions.md: ten invariants and 35 cases, and each test that they name exists."""

from __future__ import annotations

from tests.docs.proof_rows import check, numbers, rows


def test_each_invariant_and_each_case_has_a_row() -> None:
    assert [number for number, _ in rows("transactions")] == numbers(35, invariants=10)


def test_each_row_names_what_shows_it_and_each_named_test_exists() -> None:
    check("transactions", r"\bsimulation\b|\bnot yet\b")
