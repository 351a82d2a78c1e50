"""Hostile and slow clients in small numbers: memory stays under its bound, and others are served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.limits.attacks import CASES, Case
from tests.limits.measure import measure

# A fifth of the full numbers; the bounds are those of the full ones, but for what counts by connection.
SCALE = 0.2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_memory_is_bounded_and_others_are_served(case: Case, tmp_path: Path) -> None:
    found = measure(case, tmp_path, SCALE)
    print(found)
    assert found.held, str(found)
