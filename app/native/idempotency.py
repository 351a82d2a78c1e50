"""Idempotency-Key: what names a request, and how the broker's refusals of a key look over HTTP.

The draft of the IETF (draft-ietf-httpapi-idempotency-key-header) gives the statuses: 422 for a key that belongs to
another request, 409 while the first request with it is under way. A key is used unchanged, quotes included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from app.errors import Problem
from app.http.capabilities import Capabilities, require_capability
from app.http.principal import principal_of
from app.http.request import Answer, Request, Scope, invalid_parameter
from app.native.transaction_header import transaction_of
from core.errors import BrokerError
from core.facade import Facade
from core.records.record import NewRecord
from core.transactions.long_transactions import CallersTransactions
from core.vocabulary.capabilities import IDEMPOTENCY_KEYS
from core.vocabulary.idempotency import KEY_IN_USE, KEY_REUSED, KeyedRequest
from core.vocabulary.records import ProduceResult

NAME = "Idempotency-Key"
HEADER = b"idempotency-key"
REPLAYED = (b"idempotent-replayed", b"true")
MAX_KEY_LENGTH = 255
# Header lines that make the record of a raw body.
_RECORD_HEADERS = b"x-kafka-header-"


def key_check(capabilities: Capabilities) -> Callable[[Request, str], None]:
    """Return the check of a request with a key: a broker that cannot keep it must not write without it."""

    def check(request: Request, path: str) -> None:
        if request.scope["method"] == "POST":
            require_capability(capabilities(), IDEMPOTENCY_KEYS)

    return check


class _Stored(NamedTuple):
    status: int
    body: bytes
    media_type: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


class KeyedWrites:
    """Writes of records under a key. `written` makes the answer of a write, or raises its refusal."""

    def __init__(
        self,
        acting: Callable[[Scope], Facade],
        transactions: Callable[[Scope], CallersTransactions],
        written: Callable[[str, Sequence[ProduceResult]], Answer],
    ) -> None:
        self._acting = acting
        self._transactions = transactions
        self._written = written

    async def produce(
        self, request: Request, topic: str, records: Sequence[NewRecord], acks: int, body: bytes
    ) -> Answer:
        """The answer to a write with a key, the first one or a repetition. Raises Problem and BrokerError.

        In a transaction the answer is kept with the commit, and forgotten by the abort.
        """
        named = KeyedRequest(
            f"topics/{topic}/records",
            key_of(request),
            fingerprint(request, acks, body),
            principal_of(request.scope),
        )

        def render(results: Sequence[ProduceResult]) -> bytes:
            answer = self._written(topic, results)
            return _encode(_Stored(answer.status, answer.body, answer.media_type))

        try:
            if (transaction := transaction_of(request)) is not None:
                transactions = self._transactions(request.scope)
                done = await transactions.produce_once(
                    transaction, named, topic, records, acks=acks, render=render
                )
            else:
                keys = self._acting(request.scope).idempotency
                done = await keys.produce(named, topic, records, acks=acks, render=render)
        except BrokerError as error:
            raise refusal_of_key(error) from None
        headers = (REPLAYED,) if done.replayed else ()
        if done.answer is None:
            return self._written(topic, done.results)._replace(headers=headers)
        return Answer(*_decode(done.answer), headers)


def key_of(request: Request) -> str:
    """The key: 1 to 255 printable ASCII characters, in one header line. Raises Problem (422)."""
    lines = [value for name, value in request.scope["headers"] if name == HEADER]
    if len(lines) != 1:
        raise invalid_parameter(NAME, f"There are {len(lines)} {NAME} lines; a request has one key.")
    text: str = lines[0].decode("latin-1")
    if not 0 < len(text) <= MAX_KEY_LENGTH or not (text.isascii() and text.isprintable()):
        raise invalid_parameter(
            NAME, f"The {NAME} must have 1 to {MAX_KEY_LENGTH} printable ASCII characters."
        )
    return text


def fingerprint(request: Request, acks: int, body: bytes) -> bytes:
    """32 bytes over all that a write asks for: query, body and its kind, and headers of a raw body's record."""
    essence, _ = request.media_type()
    query = sorted(item for item in request.query(()).items() if item[0] != "acks")
    lines = sorted(line for line in request.scope["headers"] if line[0].startswith(_RECORD_HEADERS))
    digest = hashlib.sha256(_encode((essence, acks, query, lines)))
    digest.update(body)
    return digest.digest()


def refusal_of_key(error: BrokerError) -> Exception:
    """Return how a refusal of a key looks over HTTP; other errors as they are."""
    if error.details.get("reason") == KEY_IN_USE:
        return Problem("idempotency-key-in-use", error.message, headers={"retry-after": "1"})
    if error.details.get("reason") == KEY_REUSED:
        return Problem("idempotency-key-reused", error.message)
    return error
