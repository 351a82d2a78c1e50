"""The version that is told."""

from __future__ import annotations

import re

from app.version import VERSION


def test_the_version_has_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
