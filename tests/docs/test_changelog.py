"""docs/CHANGELOG.md keeps the form of Keep a Changelog 1.1, and has a place for the version that the code is."""

from __future__ import annotations

import datetime
import re

from app.version import VERSION
from tests.broker_process import ROOT

TEXT = (ROOT / "docs" / "CHANGELOG.md").read_text()
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
RELEASED = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)")


def headings(level: int, text: str = TEXT) -> list[str]:
    """The headings of a level."""
    return re.findall(rf"^#{{{level}}} (.+)$", text, re.MULTILINE)


def test_it_begins_with_what_is_not_released() -> None:
    assert headings(1) == ["Changelog"]
    assert headings(2)[0] == "[Unreleased]"


def test_releases_have_a_version_and_a_date_the_newest_first() -> None:
    found = [RELEASED.fullmatch(one) for one in headings(2)[1:]]
    assert all(found), headings(2)
    versions = [tuple(int(part) for part in one.groups()[:3]) for one in found if one]
    assert versions == sorted(set(versions), reverse=True)
    dates = [datetime.date.fromisoformat(one[4]) for one in found if one]
    assert dates == sorted(dates, reverse=True)


def test_the_version_of_the_code_is_the_next_one_or_the_newest() -> None:
    """Before the first release the text says so; later, the code is the newest release or comes after it."""
    ours = tuple(int(part) for part in VERSION.split("."))
    released = [tuple(int(one) for one in match.groups()[:3]) for match in RELEASED.finditer(TEXT)]
    assert released or f"the code calls itself {VERSION}" in TEXT
    assert not released or ours >= released[0]


def test_a_change_is_a_line_under_its_kind() -> None:
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        kinds = headings(3, section)
        assert kinds == [kind for kind in KINDS if kind in kinds], section.splitlines()[0]
        for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()[1:]
            changes = [line for line in lines if line.startswith("- ")]
            assert changes, part
            assert all(line.startswith(("- ", "  ")) or not line for line in lines), part
            assert all(re.match(r"- (\*\*)?[A-Z`0-9]", line) for line in changes), part
