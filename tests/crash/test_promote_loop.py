"""The kill-and-promote loop in its short form; see `tests.crash.promote_loop`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.promote_loop import promote_loop

ROUNDS = 10


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_over_kills_and_promotions(tmp_path: Path) -> None:
    print(promote_loop(tmp_path, ROUNDS, seed=20261121))
