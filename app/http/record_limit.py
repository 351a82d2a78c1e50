"""The limit of records in one request, which is kept before each record costs memory."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from app.errors import Problem

_decode_raw_list = msgspec.json.Decoder(dict[str, msgspec.Raw | list[msgspec.Raw]]).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# A record in a body takes at least the three bytes of `{},`.
_SMALLEST_RECORD = 3


class RecordLimit:
    """Refuses bodies with more records than one request may have."""

    def __init__(self, most: int) -> None:
        self.most = most

    def check(self, body: bytes) -> None:
        """Raise Problem (413) if the member `records` of a JSON body has too many items."""
        if len(body) <= _SMALLEST_RECORD * self.most or body.count(b"{") <= self.most:
            return
        try:
            members = _decode_raw_list(body)
        except _UNREADABLE:
            return
        records = members.get("records")
        if isinstance(records, list) and len(records) > self.most:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise the refusal."""
        raise Problem(
            "payload-too-large",
            f"A request takes at most {self.most} records.",
            extra={"limit": self.most, "unit": "records"},
        )
