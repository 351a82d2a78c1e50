"""What answers mean, and when a record is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.queues.webhooks.schedule import MAX_HOLD_MS, Meaning, meaning, pause_ms, retry_after_ms
from core.vocabulary.webhooks import DEFAULT_RETRIES_MS, MAX_RETRY_MS, Verdict

NOW = 1_700_000_000_000


def what(status: int, *, reject_422: bool = False, reject_4xx: bool = False, **headers: str) -> Meaning:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return meaning(status, named, NOW, reject_422=reject_422, reject_4xx=reject_4xx)


@pytest.mark.parametrize(
    ("status", "verdict", "healthy"),
    [
        (200, Verdict.ACCEPTED, True), (202, Verdict.ACCEPTED, True), (204, Verdict.ACCEPTED, True),
        (299, Verdict.ACCEPTED, True), (301, Verdict.RETRIED, False), (307, Verdict.RETRIED, False),
        (400, Verdict.RETRIED, True), (401, Verdict.RETRIED, False), (404, Verdict.RETRIED, False),
        (408, Verdict.RETRIED, False), (410, Verdict.SWITCHED_OFF, False), (422, Verdict.RETRIED, True),
        (429, Verdict.RETRIED, False), (500, Verdict.RETRIED, False), (503, Verdict.RETRIED, False),
        (600, Verdict.RETRIED, False), (999, Verdict.RETRIED, False),
    ],
)  # fmt: skip
def test_what_a_status_means(status: int, verdict: Verdict, healthy: bool) -> None:
    found = what(status)
    assert (found.verdict, found.healthy) == (verdict, healthy)


def test_an_endpoint_may_give_a_record_up() -> None:
    assert what(500, webhook_delivery=" Abort-Message ").verdict is Verdict.REJECTED
    assert what(400, webhook_delivery="retry").verdict is Verdict.RETRIED
    # A success is one, whatever else it says.
    assert what(200, webhook_delivery="abort-message").verdict is Verdict.ACCEPTED


def test_settings_give_records_up_by_status() -> None:
    assert what(422, reject_422=True).verdict is Verdict.REJECTED
    assert what(400, reject_422=True).verdict is Verdict.RETRIED
    assert what(404, reject_4xx=True).verdict is Verdict.REJECTED
    # "Later" and "off" stay what they are.
    assert [what(status, reject_4xx=True).verdict for status in (408, 410, 429)] == [
        Verdict.RETRIED, Verdict.SWITCHED_OFF, Verdict.RETRIED,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("", 0), ("30", 30_000), (" 30 ", 30_000), ("0", 0), ("-5", 0), ("1.5", 0),
        ("99999999999999999", MAX_RETRY_MS),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60_000), ("Tue, 14 Nov 2023 22:13:19 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_MS), ("soon", 0), ("٣", 0), ("Tue, 99 Foo 2023", 0),
        ("Mon, 01 Jan 99999 00:00:00 GMT", 0),
    ],
)  # fmt: skip
def test_retry_after_in_all_its_forms(text: str, ms: int) -> None:
    assert retry_after_ms(text, NOW) == ms


@given(st.text(max_size=60))
def test_any_retry_after_is_a_pause_of_a_day_at_most(text: str) -> None:
    assert 0 <= retry_after_ms(text, NOW) <= MAX_RETRY_MS


def test_an_endpoint_that_says_slow_down_is_left_alone() -> None:
    assert what(429, retry_after="30").hold_ms == 30_000
    assert what(503, retry_after="86400") == Meaning(Verdict.RETRIED, False, MAX_RETRY_MS, MAX_HOLD_MS)
    assert what(500, retry_after="30").hold_ms == 0


def test_the_schedule_repeats_its_last_pause_and_jitter_is_a_tenth() -> None:
    pauses = [pause_ms(DEFAULT_RETRIES_MS, count, 0, 0.0) for count in (1, 2, 9, 10, 1000)]
    assert pauses == [5_000, 300_000, MAX_RETRY_MS, MAX_RETRY_MS, MAX_RETRY_MS]
    assert pause_ms((1_000,), 1, 0, 0.999) == 1_099
    assert pause_ms((1_000,), 1, 20_000, 0.0) == 20_000
    assert pause_ms((), 1, 0, 0.5) == 0
