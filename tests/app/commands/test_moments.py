"""Moments: what people write, and what it means."""

from __future__ import annotations

import click
import pytest

from app.commands.moments import Moment, MomentType, parse_duration, parse_moment

NOW = 1_738_324_800_000  # 2025-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("earliest", Moment("earliest")), ("beginning", Moment("earliest")), ("latest", Moment("latest")),
        ("end", Moment("latest")), ("0", Moment("offset", 0)), (str(2**63 - 1), Moment("offset", 2**63 - 1)),
        ("-10", Moment("back", 10)), ("15m", Moment("time", NOW - 900_000)), ("9999w", Moment("time", 0)),
        ("2h ago", Moment("time", NOW - 7_200_000)), ("-1d", Moment("time", NOW - 86_400_000)),
        ("500ms", Moment("time", NOW - 500)),
        ("@1738324800", Moment("time", NOW)), ("@1738324800000", Moment("time", NOW)),
        ("2025-01-31T12:00:00Z", Moment("time", NOW)), ("2025-01-31T13:00:00.5+01:00", Moment("time", NOW + 500)),
        ("2025-01-31 12:00", Moment("time", NOW)), ("2025-01-31", Moment("time", NOW - 43_200_000)),
        (" latest ", Moment("latest")),
    ],
)  # fmt: skip
def test_a_moment_is_what_one_expects(text: str, moment: Moment) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "-",
        "@",
        "1.5h",
        "12:00",
        "-5x",
        str(2**63),
        "²",
        "1969-12-31",
        "@-1",
        "0001-01-01T00:00+23:00",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of: earliest|lies before 1970"):
        parse_moment(text, NOW)


def test_the_api_gets_names_and_milliseconds() -> None:
    assert [Moment("earliest").at, Moment("latest").at, Moment("time", 7).at] == ["earliest", "latest", "7"]


def test_an_option_takes_only_the_kinds_that_make_sense_for_it() -> None:
    assert MomentType("time").convert("@5", None, None) == Moment("time", 5000)
    with pytest.raises(click.BadParameter, match="cannot be used here; it takes time"):
        MomentType("time").convert("latest", None, None)
    assert MomentType().convert(Moment("latest"), None, None) == Moment("latest")


def test_a_duration_is_a_number_and_a_unit() -> None:
    assert [parse_duration(text) for text in ("500ms", "30s", "15m", " 2h ", "7d", "1w", "0s")] == [
        500, 30_000, 900_000, 7_200_000, 604_800_000, 604_800_000, 0,
    ]  # fmt: skip
    for text in ("", "15", "-15m", "1.5h", "15 min", "m"):
        with pytest.raises(ValueError, match="is not a duration such as 30s"):
            parse_duration(text)
