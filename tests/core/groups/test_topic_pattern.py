"""core.groups.topic_pattern: patterns of clients, without the means to keep the broker busy."""

from __future__ import annotations

import time

import pytest

from core.errors import BrokerError, ErrorCode
from core.groups.topic_pattern import compile_pattern, matches

LIMIT = 1 << 20


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("orders", "my-orders", False),
        ("orders-.*", "orders-2", True),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        ("(?i)ORDERS", "orders", True),
        ("", "orders", False),
        (r"\d{2}\.x", "42.x", True),
    ],
)
def test_a_pattern_must_cover_the_whole_name(pattern: str, name: str, fits: bool) -> None:
    assert matches(compile_pattern(pattern, LIMIT), name) is fits


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a**", "(?=a)", r"(a)\1", "x{1001}", "((((x{100}){100}){100}){100})"]
)
def test_what_is_no_re2_expression_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(BrokerError) as refused:
        compile_pattern(pattern, LIMIT)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_would_hang_a_backtracking_engine_is_linear_here() -> None:
    compiled = compile_pattern("(a+)+$", LIMIT)
    started = time.process_time()
    for _ in range(1000):
        assert not matches(compiled, "a" * 248 + "b")
    assert time.process_time() - started < 0.5
