"""The share-partition machine by examples: the table of meaning, and the edges of time, log and limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.queues.cells import SIZE, TICK_MS
from core.queues.share_changes import (
    ARCHIVING,
    AVAILABLE,
    DELAYED,
    DONE,
    LEASED,
    SETTLED,
    VOLATILE,
    Change,
    decode,
    merged,
)
from core.queues.share_partition import SharePartition
from core.vocabulary.queues import (
    MAX_DELAY_MS,
    MAX_HOLD_MS,
    AcknowledgeBatch,
    AcquiredRange,
    Backoff,
    Cause,
    DeadLetter,
    Outcome,
    QueueSettings,
    Verb,
)

NOW = 1_700_000_000_000
LOCK = 30_000
DEAD = DeadLetter("dead")


def partition(start: int = 0, **settings: Any) -> SharePartition:
    return SharePartition(QueueSettings(**settings), start, 7)


def lease(
    p: SharePartition, number: int, records: int, end: int = 1_000, now: int = NOW
) -> list[AcquiredRange]:
    while (due := p.next_due()) is not None and due <= now:
        p.expire(now)
    return p.acquire(now, number, now + LOCK, end, records)[0]


def settled(p: SharePartition, verb: Verb, number: int, first: int, last: int, **more: Any) -> list[Outcome]:
    """Settle, and return the outcome of each range."""
    return [one.outcome for one in p.settle(more.pop("now", NOW), verb, number, first, last, **more)[0]]


def again(p: SharePartition, updates: tuple[bytes, ...] = (), now: int = NOW) -> SharePartition:
    return SharePartition.restored(p.settings, p.snapshot(), updates, now)


# --- the table of meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [NOW + LOCK - 1, NOW + LOCK, NOW + LOCK + 3_600_000])
def test_an_accept_is_taken_before_and_after_the_lock_has_run_out(now: int) -> None:
    p = partition()
    lease(p, 1, 3)
    late = Outcome.SETTLED if now < NOW + LOCK else Outcome.LATE
    assert settled(p, Verb.ACCEPT, 1, 0, 2, now=now) == [late]
    p.expire(now)
    assert (p.start, p.leased, p.chunks) == (3, 0, 0)


def test_after_redelivery_the_first_holder_has_lost_its_lease() -> None:
    p = partition()
    lease(p, 1, 2)
    later = NOW + LOCK + TICK_MS
    assert lease(p, 2, 1, now=later) == [AcquiredRange(0, 0, 2)]
    assert settled(p, Verb.ACCEPT, 1, 0, 1, now=later) == [Outcome.LEASE_LOST, Outcome.LATE]
    assert settled(p, Verb.ACCEPT, 2, 0, 0, now=later) == [Outcome.SETTLED]


@pytest.mark.parametrize("verb", [Verb.ACCEPT, Verb.RELEASE, Verb.REJECT])
def test_what_is_settled_stays_settled_when_it_is_settled_again(verb: Verb) -> None:
    p = partition()
    lease(p, 1, 2)
    settled(p, Verb.ACCEPT, 1, 1, 1)
    assert settled(p, verb, 1, 1, 1) == [Outcome.ALREADY_SETTLED]
    settled(p, Verb.ACCEPT, 1, 0, 0)
    assert settled(p, verb, 1, 0, 1) == [Outcome.ALREADY_SETTLED]


def test_a_settlement_over_the_start_offset_two_leases_and_the_end() -> None:
    p = partition(10)
    lease(p, 1, 5)
    lease(p, 2, 5)
    outcomes, _ = p.settle(NOW, Verb.ACCEPT, 1, 8, 22)
    assert outcomes == [
        (8, 9, Outcome.ALREADY_SETTLED),
        (10, 14, Outcome.SETTLED),
        (15, 19, Outcome.LEASE_LOST),
        (20, 22, Outcome.INVALID),
    ]


@pytest.mark.parametrize("offset", [-1, 2**63 - 1])
def test_forged_offsets_and_lease_0_settle_nothing(offset: int) -> None:
    p = partition()
    lease(p, 1, 2)
    settled(p, Verb.RELEASE, 1, 0, 0)
    assert settled(p, Verb.ACCEPT, 1, offset, offset)[0] in (Outcome.ALREADY_SETTLED, Outcome.INVALID)
    assert settled(p, Verb.ACCEPT, 0, 0, 1) == [Outcome.LEASE_LOST]


def test_a_release_gives_the_attempt_back_if_it_does_not_count() -> None:
    p = partition(delivery_limit=1, drop=True)
    lease(p, 1, 2)
    settled(p, Verb.RELEASE, 1, 0, 0, counted=False)
    settled(p, Verb.RELEASE, 1, 1, 1)
    assert lease(p, 2, 5, end=2) == [AcquiredRange(0, 0, 1)]
    assert p.cell(1) == DONE


def test_a_late_release_lengthens_a_delay_and_never_shortens_it() -> None:
    p = partition()
    lease(p, 1, 1)
    settled(p, Verb.RELEASE, 1, 0, 0, delay_ms=1_000)
    assert settled(p, Verb.RELEASE, 1, 0, 0, delay_ms=500) == [Outcome.LATE]
    assert p.cell(0).time == NOW + 1_000
    assert settled(p, Verb.RELEASE, 1, 0, 0, delay_ms=5_000) == [Outcome.LATE]
    assert p.cell(0).time == NOW + 5_000
    assert settled(p, Verb.REJECT, 1, 0, 0) == [Outcome.LATE]


def test_a_rejected_record_keeps_its_cause_and_its_reason_over_a_restart() -> None:
    p = partition(dead_letter=DEAD)
    lease(p, 1, 2)
    _, change = p.settle(NOW, Verb.REJECT, 1, 0, 1, reason="bad")
    assert change is not None
    for one in (p, again(p), again(partition(dead_letter=DEAD), (change.encode(),))):
        assert [(g.first, g.last, g.cause) for g in one.given_up(10)] == [(0, 1, Cause.REJECTED)]
        assert [one.reason(n) for n in range(3)] == ["bad", "bad", ""]
    assert settled(p, Verb.REJECT, 1, 0, 0) == [Outcome.ALREADY_SETTLED]
    assert settled(p, Verb.ACCEPT, 1, 0, 0) == [Outcome.LEASE_LOST]
    p.archived(NOW, 0, 1)
    assert (p.start, p.archiving, p.reason(0)) == (2, 0, "")


# --- extensions ----------------------------------------------------------------------------------------------------


def test_an_extension_races_the_end_of_the_lock() -> None:
    p = partition()
    lease(p, 1, 1)
    # Locks end at multiples of a tick: 1 ms before it is still held.
    assert p.extend(NOW + LOCK - 1, 1, 0, 0, LOCK)[0] == [(0, 0, Outcome.SETTLED)]
    ended = NOW + 2 * LOCK
    assert p.extend(ended, 1, 0, 0, LOCK)[0] == [(0, 0, Outcome.LEASE_LOST)]
    assert lease(p, 2, 1, now=ended) == [AcquiredRange(0, 0, 2)]


def test_no_chain_of_extensions_is_longer_than_12_hours_also_over_a_restart() -> None:
    p = partition()
    lease(p, 1, 1)
    now = NOW
    while p.cell(0).time - now > TICK_MS:
        now = p.cell(0).time - TICK_MS
        assert p.extend(now, 1, 0, 0, 3_600_000)[0] == [(0, 0, Outcome.SETTLED)]
        p = again(p, now=now)
    assert MAX_HOLD_MS <= p.cell(0).time - NOW <= MAX_HOLD_MS + LOCK


# --- share consumers -----------------------------------------------------------------------------------------------


def test_acknowledgements_of_all_types_are_one_change() -> None:
    p = partition(dead_letter=DEAD)
    lease(p, VOLATILE, 6)
    batches = [AcknowledgeBatch(0, 1, [1]), AcknowledgeBatch(2, 5, [0, 2, 3, 4])]
    change = p.acknowledge(NOW + 5, VOLATILE, batches, 1_000)
    assert change is not None
    assert [p.cell(n).state for n in range(6)] == [SETTLED, SETTLED, SETTLED, AVAILABLE, ARCHIVING, LEASED]
    assert p.cell(5).time == NOW + 1_005


@pytest.mark.parametrize(
    "batches",
    [
        [(0, 2, [1, 1])],
        [(0, 2, [5])],
        [(0, 2, [])],
        [(2, 1, [1])],
        [(0, 2, [1]), (2, 3, [1])],
        [(3, 4, [1]), (0, 1, [1])],
        [(-1, 1, [1])],
    ],
)
def test_malformed_acknowledgements_change_nothing(batches: list[tuple[int, int, list[int]]]) -> None:
    p = partition()
    lease(p, VOLATILE, 5)
    with pytest.raises(BrokerError) as refused:
        p.acknowledge(NOW, VOLATILE, [AcknowledgeBatch(*batch) for batch in batches], LOCK)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert p.leased == 5


@pytest.mark.parametrize(
    ("number", "last", "now"), [(VOLATILE + 1, 1, 0), (VOLATILE, 5, 0), (VOLATILE, 1, LOCK)]
)
def test_an_acknowledgement_is_all_or_nothing(number: int, last: int, now: int) -> None:
    p = partition()
    lease(p, VOLATILE, 5)
    with pytest.raises(BrokerError) as refused:
        p.acknowledge(NOW + now, number, [AcknowledgeBatch(0, last, [1])], LOCK)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert p.leased == 5


def test_an_acknowledgement_below_the_start_offset_is_passed_over() -> None:
    p = partition(10)
    lease(p, VOLATILE, 1)
    assert p.acknowledge(NOW, VOLATILE, [AcknowledgeBatch(5, 9, [1])], LOCK) is None
    assert p.acknowledge(NOW, VOLATILE, [AcknowledgeBatch(5, 10, [1])], LOCK) is not None
    assert p.start == 11


def test_sessions_end_with_the_process_and_counts_stay() -> None:
    p = partition()
    lease(p, VOLATILE, 2)
    lease(p, 1, 2)
    p = again(p)
    assert [p.cell(n).state for n in range(4)] == [AVAILABLE, AVAILABLE, LEASED, LEASED]
    assert lease(p, VOLATILE, 5, end=4) == [AcquiredRange(0, 1, 2)]


def test_whole_batches_may_exceed_what_was_asked_for() -> None:
    p = partition()
    taken, _ = p.acquire(NOW, 1, NOW + LOCK, 10_000, 10_000, within=[(0, 9_999)])
    assert taken == [AcquiredRange(0, 9_999, 1)]
    q = partition()
    assert q.acquire(NOW, 1, NOW + LOCK, 10_000, 5)[0] == [AcquiredRange(0, 4, 1)]


def test_records_near_the_limit_are_delivered_fewer_at_a_time() -> None:
    p = partition(delivery_limit=5, drop=True)
    sizes, now = [], NOW
    for number in range(1, 6):
        while (due := p.next_due()) is not None and due <= now:
            p.expire(now)
        taken, _ = p.acquire(now, number, now + 100, 16, 16, isolate=True)
        sizes.append(taken[0].last - taken[0].first + 1)
        now += 200
    assert sizes == [16, 16, 16, 8, 1]


# --- what the store refuses ----------------------------------------------------------------------------------------


def test_a_refused_accept_is_taken_back_also_below_the_start_offset() -> None:
    p = partition()
    lease(p, 1, 2 * SIZE, end=10_000)
    _, change = p.settle(NOW, Verb.ACCEPT, 1, 0, 2 * SIZE - 1)
    assert change is not None and p.start == 2 * SIZE
    p.undo(change)
    assert (p.start, p.leased) == (0, 2 * SIZE)
    assert settled(p, Verb.ACCEPT, 1, 0, 2 * SIZE - 1) == [Outcome.SETTLED]


def test_the_lock_may_run_out_while_the_accept_is_on_its_way() -> None:
    p = partition()
    lease(p, 1, 1)
    _, change = p.settle(NOW, Verb.ACCEPT, 1, 0, 0)
    assert change is not None
    assert p.expire(NOW + LOCK).timed_out == 0
    assert lease(p, 2, 1, end=1, now=NOW + LOCK) == []
    # Stored: it stays accepted. Refused: it is available again.
    p.undo(change)
    assert lease(p, 2, 1, end=1, now=NOW + LOCK) == [AcquiredRange(0, 0, 2)]


def test_undo_leaves_alone_what_has_changed_since() -> None:
    p = partition()
    _, first = p.acquire(NOW, 1, NOW + LOCK, 10, 4)
    settled(p, Verb.ACCEPT, 1, 0, 1)
    assert first is not None
    p.undo(first)
    assert [p.cell(n).state for n in range(4)] == [SETTLED, SETTLED, AVAILABLE, AVAILABLE]
    assert (p.start, p.available) == (2, 2)


def test_a_cut_and_a_seek_cannot_be_taken_back() -> None:
    p = partition()
    lease(p, 1, 5)
    for change in (p.cut(NOW, 3, 8), p.seek(NOW, 0, 9)):
        assert change is not None
        with pytest.raises(ValueError, match="cannot be undone"):
            p.undo(change)


# --- the log moves -------------------------------------------------------------------------------------------------


def test_the_log_start_offset_passes_leased_delayed_and_archiving_records() -> None:
    p = partition(dead_letter=DEAD)
    lease(p, 1, 3)
    settled(p, Verb.RELEASE, 1, 1, 1, delay_ms=10_000)
    settled(p, Verb.REJECT, 1, 2, 2)
    change = p.trim(NOW, 5)
    assert change is not None and change.lost == 4
    assert (p.start, p.tracked_end, p.archiving, p.leased, p.delayed) == (2, 5, 1, 0, 0)
    assert settled(p, Verb.ACCEPT, 1, 0, 0) == [Outcome.ALREADY_SETTLED]
    p.archived(NOW, 2, 2)
    assert p.start == 5


def test_a_trim_far_beyond_the_end_takes_no_memory() -> None:
    p = partition()
    change = p.trim(NOW, 10**12)
    assert change is not None and change.lost == 10**12
    assert (p.start, p.chunks) == (10**12, 0)
    assert again(partition(), (change.encode(),)).start == 10**12


def test_compaction_takes_whole_batches_and_single_offsets_of_a_lease() -> None:
    p = partition()
    lease(p, 1, 10)
    p.missing(NOW, 0, 3)
    p.missing(NOW, 6, 6)
    assert (p.start, p.leased) == (4, 5)
    assert p.lease_ranges(1) == [AcquiredRange(4, 5, 1), AcquiredRange(7, 9, 1)]
    p.missing(NOW, 20, 29)
    assert (p.tracked_end, p.available) == (30, 10)


def test_records_that_grow_again_after_a_loss_of_power_are_delivered() -> None:
    """The accepts were on disk, the log was not: it ends below them, and new records get their offsets."""
    p = partition()
    lease(p, 1, 100)
    settled(p, Verb.ACCEPT, 1, 0, 99)
    p = again(p)
    change = p.cut(NOW, 60, 8)
    assert change is not None and (p.start, p.nonce) == (60, 8)
    assert lease(p, 2, 100, end=100) == [AcquiredRange(60, 99, 1)]
    assert p.cut(NOW, 100, 9) is None
    restored = again(partition(), (change.encode(),))
    assert (restored.tracked_end, restored.nonce) == (60, 8)


def test_a_seek_drops_everything_but_what_is_on_its_way_to_the_dead_letters() -> None:
    p = partition(dead_letter=DEAD)
    lease(p, 1, 10)
    settled(p, Verb.REJECT, 1, 4, 4)
    settled(p, Verb.ACCEPT, 1, 0, 3)
    p.seek(NOW, 100, 8)
    assert (p.start, p.archiving, p.leased, p.nonce) == (4, 1, 0, 8)
    assert lease(p, 2, 1) == [AcquiredRange(100, 100, 1)]
    p.seek(NOW, 0, 9)
    assert lease(p, 3, 10) == [AcquiredRange(0, 3, 1), AcquiredRange(5, 10, 1)]
    p.archived(NOW, 4, 4)
    assert p.archiving == 0


# --- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jump", "left"), [(0, LOCK), (1_000, LOCK - 1_000), (-3_600_000, LOCK)])
def test_a_clock_that_was_set_back_makes_no_lock_and_no_delay_longer(jump: int, left: int) -> None:
    p = partition()
    lease(p, 1, 2)
    settled(p, Verb.RELEASE, 1, 1, 1, delay_ms=LOCK)
    p = again(p, now=NOW + jump)
    assert p.next_due() == NOW + jump + left
    p.expire(NOW + jump + left - TICK_MS)
    assert (p.leased, p.delayed) == (1, 1)
    p.expire(NOW + jump + left)
    assert p.available == 2


def test_a_clock_an_hour_ahead_or_a_stop_of_a_minute_ends_locks_and_accepts_are_late() -> None:
    p = partition()
    lease(p, 1, 2)
    p = again(p, now=NOW + 3_600_000)
    assert p.expire(NOW + 3_600_000).timed_out == 2
    assert settled(p, Verb.ACCEPT, 1, 0, 1, now=NOW + 3_600_000) == [Outcome.LATE]


@pytest.mark.parametrize(("delay", "until"), [(0, 0), (1, TICK_MS), (MAX_DELAY_MS, MAX_DELAY_MS)])
def test_delays_of_0_1_and_7_days(delay: int, until: int) -> None:
    p = partition()
    lease(p, 1, 1)
    settled(p, Verb.RELEASE, 1, 0, 0, delay_ms=delay)
    assert p.delayed == (delay > 0)
    if delay:
        p.expire(NOW + until - 1)
        assert p.delayed == 1
        p.expire(NOW + until)
    assert lease(p, 2, 1, end=1, now=NOW + until) == [AcquiredRange(0, 0, 2)]


def test_many_delays_that_end_together_are_taken_in_pieces() -> None:
    p = partition(max_in_flight=100_000)
    lease(p, 1, 100_000, end=100_000)
    settled(p, Verb.RELEASE, 1, 0, 99_999, delay_ms=1_000)
    calls = 0
    while (due := p.next_due()) is not None and due <= NOW + 1_000:
        p.expire(NOW + 1_000, max_chunks=10)
        calls += 1
    assert (calls, p.available) == (10, 100_000)


def test_a_back_off_grows_to_its_most_and_begins_at_the_end_of_the_lock() -> None:
    p = partition(delivery_limit=None, backoff=Backoff(1_000, 3.0, 5_000))
    now, pauses = NOW, []
    for number in range(1, 5):
        assert p.acquire(now, number, now + 1_000, 1, 1)[0]
        p.expire(now + 1_000)
        pauses.append(p.cell(0).time - now - 1_000)
        now += 60_000
        p.expire(now)
    assert pauses == [1_000, 3_000, 5_000, 5_000]


def test_jitter_is_the_same_after_a_restart() -> None:
    p = partition(backoff=Backoff(10_000, jitter=0.5))
    lease(p, 3, 1)
    q = again(p)
    for one in (p, q):
        one.expire(NOW + LOCK)
    assert p.cell(0) == q.cell(0) and p.cell(0).state == DELAYED
    assert 5_000 <= p.cell(0).time - NOW - LOCK <= 15_000


# --- limits --------------------------------------------------------------------------------------------------------


def test_a_limit_of_one_delivery_and_none() -> None:
    p = partition(delivery_limit=1, dead_letter=DEAD)
    lease(p, 1, 1)
    expired = p.expire(NOW + LOCK)
    assert expired.change is not None and [g.cause for g in p.given_up(5)] == [Cause.EXPIRED]
    q = partition(delivery_limit=None)
    for number in range(1, 50):
        assert lease(q, number, 1, end=1) == [AcquiredRange(0, 0, number)]
        settled(q, Verb.RELEASE, number, 0, 0)


def test_without_a_dead_letter_topic_a_record_is_held_and_not_dropped() -> None:
    p = partition(delivery_limit=2)
    for number in (1, 2):
        lease(p, number, 1, end=1)
        settled(p, Verb.RELEASE, number, 0, 0)
    assert p.cell(0).state == DELAYED and p.cell(0).time == NOW + 1_000
    assert lease(p, 3, 1, end=1, now=NOW + 1_000) == [AcquiredRange(0, 0, 3)]


def test_settings_changed_in_flight_count_at_the_next_event() -> None:
    p = partition(delivery_limit=5, dead_letter=DEAD, max_in_flight=10)
    lease(p, 1, 10)
    p.settings = replace(p.settings, delivery_limit=1, max_in_flight=4)
    assert (p.leased, p.free) == (10, 0)
    assert lease(p, 2, 5) == []
    p.expire(NOW + LOCK)
    assert p.archiving == 10


def test_given_up_records_count_against_the_limit() -> None:
    p = partition(dead_letter=DEAD, max_in_flight=3)
    lease(p, 1, 3)
    settled(p, Verb.REJECT, 1, 0, 2)
    assert (p.free, lease(p, 2, 1)) == (0, [])
    p.archived(NOW, 0, 0)
    assert lease(p, 2, 5) == [AcquiredRange(3, 3, 1)]


# --- memory --------------------------------------------------------------------------------------------------------


def test_one_stuck_record_stalls_nothing_and_takes_one_chunk() -> None:
    p = partition(max_in_flight=1_000)
    lease(p, 1, 1, end=1)
    for number in range(2, 1_002):
        p.acquire(NOW, number, NOW + LOCK, 1_000_000, 999)
        (taken,) = p.lease_ranges(number)
        p.settle(NOW, Verb.ACCEPT, number, taken.first, taken.last)
    assert (p.start, p.tracked_end, p.chunks) == (0, 999_001, 1)
    assert len(p.snapshot()) < 20_000
    settled(p, Verb.ACCEPT, 1, 0, 0)
    assert (p.start, p.chunks) == (999_001, 0)


def test_every_second_record_settled() -> None:
    p = partition()
    lease(p, 1, 10_000, end=10_000)
    changes: list[Change | None] = [
        p.settle(NOW, Verb.ACCEPT, 1, offset, offset)[1] for offset in range(0, 10_000, 2)
    ]
    whole = merged(changes)
    assert whole is not None and len(decode(whole.encode()).runs) == 5_000
    assert (p.start, p.leased) == (1, 5_000)
    restored = again(p)
    assert [restored.cell(n) for n in range(10_000)] == [p.cell(n) for n in range(10_000)]
    p.expire(NOW + LOCK, max_chunks=100)
    while p.leased:
        p.expire(NOW + LOCK)
    assert p.available == 5_000


def test_a_corrupt_snapshot_is_refused() -> None:
    with pytest.raises(ValueError):
        SharePartition.restored(QueueSettings(), b"\xc1", (), NOW)
