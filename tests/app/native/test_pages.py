"""Pages of a listing: every name once, in order, whatever the order of the items is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Problem
from app.native import pages
from core.config import Config

CONFIG = Config(http_default_page_size=3, http_max_page_size=5)


@given(
    st.sets(st.text(st.characters(codec="utf-8"), min_size=1, max_size=4), max_size=20),
    st.none() | st.integers(1, 5),
)
def test_the_pages_have_every_name_once(names: set[str], size: int | None) -> None:
    found: list[str] = []
    token: str | None = None
    while True:
        page, token = pages.asked(CONFIG, size, token).of(names, str)
        found += page
        if token is None:
            break
        assert len(page) == (size or 3)
    assert found == sorted(names)


def test_a_page_that_ends_with_the_last_name_is_the_last_one() -> None:
    assert pages.asked(CONFIG, None, None).of(["c", "a", "b"], str) == (["a", "b", "c"], None)


@pytest.mark.parametrize(("size", "token"), [(6, None), (2, "!"), (2, "é"), (2, "_w")])
def test_what_cannot_be_a_page_is_refused(size: int, token: str | None) -> None:
    with pytest.raises(Problem):
        pages.asked(CONFIG, size, token)
