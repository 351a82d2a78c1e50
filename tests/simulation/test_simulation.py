"""The broker's promises over 200 seeds in virtual time, and the proof that broken ones are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from core.broker.flusher import Flusher
from core.broker.unclean_start import LeaderEpochs, UncleanStart
from core.errors import ErrorCode
from core.groups import store as group_store
from core.groups.group import Group
from core.groups.groups import Groups
from core.log.producer_state import ProducerStates
from core.records.control import EndMarker
from core.security.authorizer import Rights
from core.security.guarded import GuardedPartitions
from core.transactions import decisions
from tests.simulation.run import Outcome, has_principals, simulate

ROOT = Path(__file__).resolve().parents[2]
# Thousands run by hand: what they found needed thousands anyway.
SEEDS = 200
# A broken promise must show within this many seeds.
ENOUGH = 60


@pytest.mark.timeout(900)
def test_the_seeds_keep_every_promise() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", str(SEEDS)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert f"{SEEDS} seeds" in done.stdout and "0 failed" in done.stdout
    print(done.stdout)


def test_a_seed_gives_the_same_run_again_to_the_line() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "7"]
    runs = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) > 200


def first_failure(seeds: Iterable[int] = range(1, ENOUGH + 1)) -> Outcome:
    """The first run that fails."""
    for seed in seeds:
        outcome = simulate(seed)
        if outcome.failure:
            return outcome
    raise AssertionError("no seed has noticed it")


def test_an_answer_before_its_fsync_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "durable", lambda *_: None)
    # A lost record, another one in its place, or a sequence that has a hole now.
    assert str(first_failure().failure).startswith("BrokenPromiseError")


def test_a_retry_that_is_stored_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda *_: None)
    assert "is a duplicate" in str(first_failure().failure)


def test_a_commit_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_store, "offsets_effects", lambda change: [])
    failure = str(first_failure().failure)
    assert "committed is" in failure or "was acknowledged" in failure


def test_a_member_that_speaks_for_an_old_generation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "check_commit", lambda *_: ErrorCode.NONE)
    # The seeds before find nothing.
    assert "of generation" in str(first_failure(range(20, 20 + ENOUGH)).failure)


async def _nothing(*_: object) -> None:
    pass


def test_a_group_that_read_ahead_of_the_disk_and_skips_records_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UncleanStart, "cut_back_groups", _nothing)
    failure = str(first_failure().failure)
    # Either the log has grown past the committed offset, or not yet.
    assert "never saw" in failure or "fetching @" in failure


def test_a_batch_of_lost_records_that_is_acknowledged_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UncleanStart, "cut_back_consumers", _nothing)
    # The seeds before find nothing.
    failure = str(first_failure(range(8, 8 + ENOUGH)).failure)
    assert "held0" in failure and "never saw" in failure


def test_what_a_queue_knows_of_lost_records_and_keeps_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UncleanStart, "cut_back_queues", _nothing)
    assert "workers has come to the end of the log and never saw" in str(first_failure().failure)


def test_a_leader_epoch_that_stays_after_an_unclean_stop_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderEpochs, "raise_to", _nothing)
    assert "epochs0" in str(first_failure().failure)


def test_an_abort_that_commits_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "EndMarker", lambda commit, coordinator_epoch: EndMarker(True, 0))
    failure = str(first_failure().failure)
    # A reader gets it before or after the answer to the abort.
    assert "of an aborted transaction was read" in failure or "was aborted and is there" in failure


def test_offsets_that_are_not_committed_with_their_transaction_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settle = Groups.settle_transaction
    monkeypatch.setattr(
        Groups,
        "settle_transaction",
        lambda groups, *producer_and_commit: settle(groups, *producer_and_commit[:2], False),
    )
    assert ": committed is -1 for " in str(first_failure().failure)


GUARDED_SEEDS = [seed for seed in range(1, 4 * ENOUGH) if has_principals(seed)][: ENOUGH // 2]


def test_a_fetch_that_does_not_ask_again_when_it_wakes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(self: GuardedPartitions, reads: Any, **options: Any) -> Any:
        return await self._broker.partitions.fetch(reads, **options)

    monkeypatch.setattr(GuardedPartitions, "fetch", fetch)
    assert "leak: a fetch gave" in str(first_failure(GUARDED_SEEDS).failure)


def test_a_decision_that_is_kept_after_a_change_of_the_rules_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renew = Rights._renew
    monkeypatch.setattr(Rights, "_renew", lambda rights: renew(rights) if rights._generation < 0 else None)
    failure = str(first_failure(GUARDED_SEEDS).failure)
    assert "leak" in failure or "which has the right" in failure
