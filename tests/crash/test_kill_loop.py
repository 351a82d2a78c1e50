"""The kill loop in its short form: 20 kills in CI, a few elsewhere."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.kill_loop import Ledger, check_everything, kill_loop

ROUNDS = 20 if os.environ.get("CI") == "true" else 5


@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_again_and_again_keeps_its_word(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    print(kill_loop(tmp_path, ROUNDS, seed))


def _found(*values: bytes) -> dict[tuple[str, int, int], bytes]:
    return {("idempotent", 0, offset): value for offset, value in enumerate(values)}


def _ledger(acknowledged: dict[tuple[str, int, int], bytes]) -> Ledger:
    return Ledger(acknowledged=acknowledged)


def test_the_loop_accepts_what_was_acknowledged_and_more() -> None:
    check_everything(_ledger(_found(b"i-0", b"i-1")), _found(b"i-0", b"i-1", b"i-2"))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (_found(b"i-0"), "is gone"),
        (_found(b"i-0", b"i-2"), "now it is"),
        (_found(b"i-0", b"i-1", b"i-1"), "there twice"),
        (_found(b"i-0", b"i-1", b"i-3", b"i-2"), "out of order"),
    ],
)
def test_the_loop_sees_every_kind_of_broken_promise(
    found: dict[tuple[str, int, int], bytes], says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        check_everything(_ledger(_found(b"i-0", b"i-1")), found)


def test_the_loop_sees_data_that_changed_after_it_was_read() -> None:
    ledger = Ledger(seen=_found(b"i-0", b"i-7"))
    with pytest.raises(AssertionError, match="was read"):
        check_everything(ledger, _found(b"i-0", b"i-1"))


def test_one_place_for_two_values_is_a_failure() -> None:
    ledger = Ledger()
    ledger.acknowledge(("plain", 0, 5), b"p-1")
    ledger.acknowledge(("plain", 0, 5), b"p-2")
    assert ledger.failures
