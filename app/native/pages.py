"""Pages of a listing: some items in the order of their names, and the token that leads to the next ones."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import NamedTuple, TypeVar

from app.http.request import invalid_parameter
from core.config import Config

T = TypeVar("T")


class Asked(NamedTuple):
    """The page that a request asks for: at most `size` items, those with a name after `after`; None: the first."""

    size: int
    after: str | None

    def of(self, items: Iterable[T], name: Callable[[T], str]) -> tuple[list[T], str | None]:
        """Return the page and the token of the next one, None after the last. Names are unique."""
        after = self.after
        left = items if after is None else (item for item in items if name(item) > after)
        page = nsmallest(self.size + 1, left, key=name)
        more = len(page) > self.size
        del page[self.size :]
        return page, token(name(page[-1])) if more else None


def asked(config: Config, page_size: int | None, page_token: str | None) -> Asked:
    """Read the two parameters of a listing. Raises Problem."""
    size = config.http_default_page_size if page_size is None else page_size
    if size > config.http_max_page_size:
        raise invalid_parameter(
            "page_size", f"page_size must be from 1 to {config.http_max_page_size}, not {size}."
        )
    return Asked(size, None if page_token is None else _name(page_token))


def token(name: str) -> str:
    """Return the token of the page after an item of that name."""
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _name(text: str) -> str:
    try:
        name = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeError):
        name = ""
    # b64decode passes over what is not in its alphabet; such a token was not made here either.
    if token(name) != text:
        raise invalid_parameter("page_token", "page_token is not one that was handed out here.")
    return name
