"""A broker, then a consumer, that stands still for longer than sessions last, in its short form (R8)."""

from __future__ import annotations

from pathlib import Path

from tests.crash import pauses


def test_a_pause_of_the_broker_or_of_a_consumer_loses_nothing(tmp_path: Path) -> None:
    print(pauses.run(tmp_path, pauses.SESSION_SECONDS + 1))
