"""Filters by key and header: which records of a topic a reader wants.

The grammar, in query parameters; a record must satisfy all that are given:

    key=<text>              its key is exactly this
    key_prefix=<text>       its key begins with this
    key_encoding=<name>     how the two above stand in the query: utf8 (default) or base64
    header.<name>=<text>    it has a header of this name with exactly this value; names are case-sensitive

A record without a key has no key that could match, not even `key=`, which is the empty key. Nothing here is a
pattern: no regular expression of a client's is ever run. A filtered read examines every record, so that positions
move past those that do not match.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import NamedTuple

from app.http.request import invalid_parameter
from core.records.record import Record

HEADER = "header."


class Filter(NamedTuple):
    """What a record must have; None and () ask for nothing."""

    key: bytes | None
    key_prefix: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def takes(self, record: Record) -> bool:
        """Whether a record is wanted."""
        key = record.key
        if self.key is not None and key != self.key:
            return False
        if self.key_prefix is not None and (key is None or not key.startswith(self.key_prefix)):
            return False
        return all(wanted in record.headers for wanted in self.headers)


def read_filter(query: Mapping[str, str]) -> Filter | None:
    """The filter that a query asks for; None when it asks for none. Raises Problem."""
    headers = []
    for name, value in query.items():
        if name.startswith(HEADER):
            if name == HEADER:
                raise invalid_parameter(name, "header. needs the header's name after the dot.")
            headers.append((name[len(HEADER) :], value.encode()))
    encoding = query.get("key_encoding", "utf8")
    if encoding not in ("utf8", "text", "base64", "binary"):
        raise invalid_parameter(
            "key_encoding", f"key_encoding must be utf8 or base64, not {encoding[:40]!r}."
        )
    if "key" in query and "key_prefix" in query:
        raise invalid_parameter("key_prefix", "Give a key or a key_prefix, not both.")
    if "key_encoding" in query and not ("key" in query or "key_prefix" in query):
        raise invalid_parameter("key_encoding", "key_encoding needs a key or a key_prefix.")
    key = _bytes("key", query, encoding)
    prefix = _bytes("key_prefix", query, encoding)
    if key is None and prefix is None and not headers:
        return None
    return Filter(key, prefix, tuple(sorted(headers)))


def _bytes(name: str, query: Mapping[str, str], encoding: str) -> bytes | None:
    text = query.get(name)
    if text is None:
        return None
    if encoding in ("utf8", "text"):
        return text.encode()
    try:
        # In a query, a plus sign that was not escaped arrives as a blank.
        return binascii.a2b_base64(text.replace(" ", "+").encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise invalid_parameter(name, f"{name} is not base64.") from None
