"""Writes under an idempotency key: the request and its answer."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from core.vocabulary.records import ProduceResult

# The principal, in a key, of a client without credentials.
NO_PRINCIPAL = "anonymous"
# `details["reason"]` of the BrokerError when a key belongs to another request.
KEY_REUSED = "key-reused"


class KeyedRequest(NamedTuple):
    """A request by its key. `principal` sends it; `fingerprint` is a digest (32 bytes) of everything it asks for."""

    path: str
    key: str
    fingerprint: bytes
    principal: str = NO_PRINCIPAL

    @property
    def digest(self) -> bytes:
        """The digest (32 bytes) of principal, path and key, which identifies the key in the store."""
        # None of the three holds a control character, so that two different triples never give the same text.
        return hashlib.sha256(f"{self.principal}\0{self.path}\0{self.key}".encode()).digest()


class KeyedAnswer(NamedTuple):
    """The stored answer, if there is one; else the results of the records, all of which were refused.

    `replayed`: this request has appended nothing, an earlier one had.
    """

    answer: bytes | None
    results: list[ProduceResult]
    replayed: bool
