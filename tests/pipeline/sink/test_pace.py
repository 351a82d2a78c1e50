"""A rate is kept evenly, whatever it is, by a clock that only sleeping moves."""

from __future__ import annotations

import time

import pytest

from pipeline.sink.pace import Pace


@pytest.mark.parametrize(
    ("rate", "records", "sent"), [(1000, 250, [100, 100]), (2, 4, [1, 1, 1]), (0.1, 2, [1])]
)
def test_what_waits_is_sent_in_even_pieces(
    rate: float, records: int, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    pace, waiting = Pace(rate), [0]
    pieces: list[int] = []

    def send() -> None:
        pieces.append(waiting[0])
        waiting[0] = 0

    for passed in range(records):
        pace.keep(send)
        waiting[0] += 1
        assert passed < 1 + rate * (now[0] - 100.0) + rate / 10
    assert pieces == sent
    assert now[0] == pytest.approx(100.0 + sum(sent) / rate)


def test_time_that_was_lost_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    slept: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    pace = Pace(10)
    pace.keep(list)
    now[0] = 5.0
    for _ in range(20):
        pace.keep(list)
    assert slept == []
