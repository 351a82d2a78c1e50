"""Writes under an idempotency key: the request and its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from core.records.record import NewRecord
from core.vocabulary.one_shot import Keep
from core.vocabulary.records import ProduceResult

# The principal, in a key, of a client without credentials.
NO_PRINCIPAL = "anonymous"
# `details["reason"]` of the BrokerError when a key belongs to another request.
KEY_REUSED = "key-reused"
# The same, while a request with the key is under way.
KEY_IN_USE = "key-in-use"


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


class Idempotency(Protocol):
    """Writes under idempotency keys, as `broker.idempotency`."""

    async def produce(
        self,
        request: KeyedRequest,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: int,
        render: Callable[[Sequence[ProduceResult]], bytes],
    ) -> KeyedAnswer:
        """Append records once for all requests with that key. `render` makes the answer that is stored.

        Raises CONCURRENT_TRANSACTIONS while another request with the key is under way, INVALID_REQUEST (reason
        "key-reused") if the key belongs to another request, THROTTLING_QUOTA_EXCEEDED, KAFKA_STORAGE_ERROR if the key
        cannot be stored (nothing is appended then), and what `Records.produce` raises.
        """

    async def decide(
        self, request: KeyedRequest, work: Callable[[Keep], Coroutine[Any, Any, bytes]]
    ) -> KeyedAnswer:
        """Have `work` decide something once for all requests with that key, and return its answer.

        `work` gets what stores the answer in the decision. Raises as `produce`, and what `work` raises.
        """
        ...
