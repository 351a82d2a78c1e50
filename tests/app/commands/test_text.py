"""Words and numbers for people."""

from __future__ import annotations

import pytest

from app.commands.text import counted, duration, one_line, owned, printable, ranges, size, width_of


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (4_404_019, "4.2 MiB"), (2**60, "1024.0 PiB")],
)
def test_sizes_have_the_unit_that_keeps_them_short(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (1500, "1.5 s"), (60_000, "1 min"), (90_000, "90 s"),
        (3_600_000, "1 h"), (604_800_000, "7 d"), (90_000_000, "25 h"),
    ],
)  # fmt: skip
def test_durations_have_the_largest_unit_that_fits(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_counts_agree_with_their_nouns() -> None:
    assert [counted(n, "record") for n in (0, 1, 12_000)] == ["0 records", "1 record", "12,000 records"]


def test_numbers_in_a_row_are_ranges() -> None:
    assert ranges([7, 0, 1, 2, 2, 9]) == "0-2,7,9"
    assert ranges([]) == ""


def test_control_characters_become_escapes() -> None:
    assert printable("a\x1b[2J\x07\x9b\u202e\tb\n") == "a\\x1b[2J\\x07\\x9b\\u202e\tb\n"
    assert printable("ümläut \U0001f600") == "ümläut \U0001f600"
    assert one_line("a\tb\nc\rd") == "a\\tb\\nc\\rd"
    assert printable("\udcff") == "\\udcff"


def test_width_is_what_a_terminal_shows() -> None:
    assert (width_of("abc"), width_of("日本"), width_of("e\u0301")) == (3, 4, 1)


def test_partitions_are_shown_by_topic() -> None:
    names = [("b", 1), ("a", 2), ("a", 0), ("a", 1)]
    assert owned({"topic": topic, "partition": partition} for topic, partition in names) == "a[0-2] b[1]"
