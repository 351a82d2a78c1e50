"""A short fuzz of every parser and listener, and each input again that once did harm."""

from __future__ import annotations

import pytest

from tests.fuzz.listeners import fuzz_listener, listeners
from tests.fuzz.parsers import Parser, parsers
from tests.fuzz.run import fuzz, kept, try_one

INPUTS = 6000
SEED = 20_261
NAMES = [parser.name for parser in parsers()]


def the_parser(name: str, run: object) -> None:
    for parser in parsers():
        if parser.name == name:
            run(parser)  # type: ignore[operator]


@pytest.mark.parametrize("name", NAMES)
def test_a_parser_raises_typed_errors_only_and_soon(name: str) -> None:
    def run(parser: Parser) -> None:
        report = fuzz(parser, SEED, inputs=INPUTS // parser.weight)
        assert report.finding is None, (report.finding, report)
        assert report.inputs == INPUTS // parser.weight

    the_parser(name, run)


@pytest.mark.parametrize("name", NAMES)
def test_what_once_did_harm_does_no_more(name: str) -> None:
    def run(parser: Parser) -> None:
        for data in kept(name):
            _, _, why = try_one(parser, data)
            assert not why, (data, why)

    the_parser(name, run)


@pytest.mark.parametrize("name", sorted(listeners(0)))
def test_a_listener_stands_whatever_comes_in(name: str) -> None:
    report = fuzz_listener(name, SEED, inputs=3000)
    assert report.finding is None, (report.finding, report)
    assert report.inputs >= 3000


def test_an_error_that_is_not_typed_is_found() -> None:
    careless = Parser("careless", lambda: [b"12", b"34"], lambda data: int(data), ())
    report = fuzz(careless, SEED, inputs=1000)
    assert report.finding is not None and "ValueError" in report.finding.why
