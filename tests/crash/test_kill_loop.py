"""The kill loop in its short form: 20 kills in CI, a few elsewhere."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.kill_loop import kill_loop

ROUNDS = 20 if os.environ.get("CI") == "true" else 5


@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_again_and_again_keeps_its_word(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    print(kill_loop(tmp_path, ROUNDS, seed))
