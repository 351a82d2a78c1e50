"""The gateway loop in its short form; see `tests.crash.gateway_loop`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.gateway_loop import gateway_loop

ROUNDS = 4


@pytest.mark.timeout(400)
def test_nothing_is_lost_or_doubled_while_gateways_are_killed_and_stopped(tmp_path: Path) -> None:
    print(gateway_loop(tmp_path, ROUNDS, seed=20261123))
