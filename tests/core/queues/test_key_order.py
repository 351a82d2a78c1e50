"""Order by key: one unsettled delivery of a key, successors in the order of their offsets, whatever happens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.queues import key_order
from core.queues.key_order import KeyOrder
from core.queues.share_changes import DELAYED, LEASED
from core.queues.share_partition import SharePartition
from core.vocabulary.queues import Backoff, DeadLetter, Order, QueueSettings, Verb

NOW = 1_700_000_000_000
SETTINGS = QueueSettings(
    order=Order.KEY, dead_letter=DeadLetter("dead"), backoff=Backoff(100), delivery_limit=3
)


class Keyed:
    """A share partition in key mode, with the keys of its log."""

    def __init__(self, keys: Sequence[int | None], settings: QueueSettings = SETTINGS) -> None:
        self.keys = keys
        self.machine = SharePartition(settings, 0, 1)
        self.order = KeyOrder(self.machine)
        self.now = NOW
        self.lease = 0

    def take(self, most: int) -> list[int]:
        """Lease up to `most` records in a lease of their own."""
        while (due := self.machine.next_due()) is not None and due <= self.now:
            self.machine.expire(self.now)
        while self.order.scanned < len(self.keys) and self.order.may_scan:
            self.order.offer(self.order.scanned, self.keys[self.order.scanned], 1)
        picked = self.order.pick(most)
        self.lease += 1
        taken, _ = self.machine.acquire(
            self.now,
            self.lease,
            self.now + 1_000,
            len(self.keys),
            len(picked),
            within=[(n, n) for n in picked],
        )
        return [offset for first, last, _ in taken for offset in range(first, last + 1)]

    def settle(self, verb: Verb, offset: int, **more: int) -> None:
        """Settle a record by the lease that has it."""
        lease = self.machine.cell(offset).lease
        self.machine.settle(self.now, verb, lease, offset, offset, delay_ms=more.get("delay"))


def test_one_key_is_delivered_one_at_a_time_in_order() -> None:
    keyed = Keyed([7] * 5)
    for offset in range(5):
        assert keyed.take(10) == [offset]
        assert keyed.take(10) == []
        keyed.settle(Verb.ACCEPT, offset)
    assert not keyed.order.waiting


def test_all_keys_different_are_delivered_at_once_and_so_are_records_without_a_key() -> None:
    assert Keyed([1, 2, 3, None, None, 4]).take(10) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("verb", [Verb.ACCEPT, Verb.REJECT])
def test_a_record_that_is_accepted_or_given_up_unblocks_its_key(verb: Verb) -> None:
    keyed = Keyed([1, 1, 2])
    assert keyed.take(10) == [0, 2]
    keyed.settle(verb, 0)
    assert keyed.take(10) == [1]


def test_a_delay_keeps_the_key_blocked_until_it_ends() -> None:
    keyed = Keyed([1, 1, 2])
    assert keyed.take(1) == [0]
    keyed.settle(Verb.RELEASE, 0, delay=500)
    assert keyed.take(10) == [2]
    keyed.now += 500
    assert keyed.take(10) == [0]


def test_a_lock_that_ran_out_keeps_the_key_blocked() -> None:
    keyed = Keyed([1, 1])
    assert keyed.take(1) == [0]
    keyed.now += 1_100
    assert keyed.take(10) == [0]


def test_a_blocked_key_bounds_how_far_the_caller_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "MAX_LOOK_AHEAD", 100)
    keyed = Keyed([1] * 1_000 + [2])
    assert keyed.take(10) == [0]
    assert keyed.order.scanned == 101
    assert not keyed.order.may_scan
    keyed.settle(Verb.ACCEPT, 0)
    assert keyed.take(10) == [1]
    assert keyed.order.scanned == 102


def test_bytes_of_records_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "MAX_WAITING_BYTES", 10)
    keyed = Keyed([1] * 1_000)
    assert keyed.take(10) == [0]
    assert keyed.order.scanned == 11


def test_after_a_restart_the_order_is_the_same() -> None:
    keyed = Keyed([1, 1, 2, 1, 2])
    assert keyed.take(10) == [0, 2]
    keyed.settle(Verb.ACCEPT, 2)
    keyed.machine = SharePartition.restored(SETTINGS, keyed.machine.snapshot(), [], keyed.now)
    keyed.order = KeyOrder(keyed.machine)
    assert keyed.take(10) == [4]
    keyed.settle(Verb.ACCEPT, 0)
    assert keyed.take(10) == [1]


def test_a_record_leased_before_the_queue_had_an_order_blocks_its_key() -> None:
    keyed = Keyed([1, 1, 1])
    keyed.machine.acquire(keyed.now, 50, keyed.now + 1_000, 3, 1, within=[(1, 1)])
    keyed.order = KeyOrder(keyed.machine)
    assert keyed.take(10) == []
    keyed.settle(Verb.ACCEPT, 1)
    assert keyed.take(10) == [0]
    keyed.settle(Verb.ACCEPT, 0)
    assert keyed.take(10) == [2]


def test_records_that_the_log_lost_do_not_block() -> None:
    keyed = Keyed([1, 1, 1, 2, 1])
    assert keyed.take(1) == [0]
    keyed.machine.missing(keyed.now, 1, 2)
    keyed.machine.trim(keyed.now, 1)
    assert keyed.take(10) == [3, 4]


def test_what_was_picked_and_not_acquired_is_picked_again() -> None:
    keyed = Keyed([1, 2, 3])
    for offset, key in enumerate(keyed.keys):
        keyed.order.offer(offset, key)
    assert keyed.order.pick(2) == [0, 1]
    assert keyed.order.pick(3) == [0, 1, 2]


@given(
    keys=st.lists(st.sampled_from([None, 1, 2, 3]), max_size=30),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(0, 30)), min_size=1, max_size=60
    ),
)
def test_in_every_order_of_events_a_key_has_one_delivery_and_nothing_is_forgotten(
    keys: list[int | None], steps: list[tuple[int, int, int]]
) -> None:
    keyed = Keyed(keys)
    last: dict[int, int] = {}

    def take(most: int) -> None:
        for offset in keyed.take(most):
            key = keys[offset]
            if key is not None:
                assert last.get(key, -1) <= offset
                last[key] = offset
        busy = [keys[n] for n in range(len(keys)) if keyed.machine.cell(n).state in (LEASED, DELAYED)]
        assert all(busy.count(key) == 1 for key in busy if key is not None)

    for what, most, at in steps:
        if what < 2:
            take(most)
        elif what == 2:
            keyed.now += 90 * most
        elif at < len(keys) and keyed.machine.cell(at).state == LEASED:
            keyed.settle((Verb.ACCEPT, Verb.RELEASE, Verb.REJECT)[what - 3], at, delay=most * 50)
    for _ in range(4 * len(keys) + 1):
        keyed.now += 10_000
        take(len(keys))
        for offset in range(len(keys)):
            if keyed.machine.cell(offset).state == LEASED:
                keyed.settle(Verb.ACCEPT, offset)
    keyed.machine.archived(keyed.now, 0, len(keys))
    assert keyed.machine.start == len(keys)
