"""The kill loop in its short form: 20 kills in CI, a few elsewhere. The checker of histories has its own tests."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.kill_loop import FAULTS, KillLoop, compare

ROUNDS = 20 if os.environ.get("CI") == "true" else 5


@pytest.mark.timeout(400)
def test_a_broker_that_is_killed_again_and_again_keeps_its_word_to_clients_of_all_protocols(
    tmp_path: Path,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    print(KillLoop(tmp_path, seed).run(ROUNDS))


@pytest.mark.timeout(400)
def test_pauses_and_stops_in_order_break_no_promise_either(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    print(KillLoop(tmp_path, seed, FAULTS).run(max(3, ROUNDS // 5)))


@pytest.mark.parametrize(
    ("found", "says"), [({}, "is lost"), ({("t", 0, 0): b"b"}, "became")], ids=["lost", "changed"]
)
def test_what_was_known_before_a_kill_is_looked_for(
    found: dict[tuple[str, int, int], bytes], says: str
) -> None:
    known = {("t", 0, 0): b"a"}
    compare(known, dict(known), {})
    with pytest.raises(AssertionError, match=says):
        compare(known, found, {})
