"""Transactions of several requests: begin, write with the header `Transaction`, commit or abort.

curl -X POST …/transactions:begin                                              201, {"id": "…"}
curl -H "Transaction: $id" -d '{"records": [{"value": 1}]}' …/topics/a/records
curl -X POST …/transactions/$id:commit
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from app.http.parameters import PATH_NAME
from app.native.dependencies import LongTransactionsDep
from app.native.record_json import iso_time
from app.native.schemas import Shape
from core.config import Config
from core.transactions.long_transactions import LongTransactionInfo, Outcome

_LIMITS = Config()
DEFAULT_TIMEOUT_MS = 30_000

TransactionId = Annotated[
    str,
    Path(
        description="The id of the transaction, from its begin.",
        examples=["__http-c2x1aWNlLWlzLWthZmth"],
        max_length=1100,
        json_schema_extra=PATH_NAME,
    ),
]


class TransactionToBegin(Shape):
    """A transaction of several requests."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"timeout_ms": 30000, "transactional_id": "job-7"}
    ]})  # fmt: skip

    timeout_ms: Annotated[StrictInt, Field(ge=1, le=_LIMITS.long_transaction_max_ms)] = Field(
        default=DEFAULT_TIMEOUT_MS, description="It is aborted after this time without a request in it."
    )
    transactional_id: Annotated[StrictStr, Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="Fences the client that has begun with the same one before, and aborts its transaction.",
    )


class TransactionBegun(BaseModel):
    """An open transaction."""

    id: str = Field(description="What the header `Transaction` of the requests in it says.")
    transactional_id: str
    timeout_ms: int
    expires: str | None = Field(description="When it is aborted if no request comes until then.")
    expires_ms: int


class TransactionEnded(BaseModel):
    """A transaction that has ended."""

    id: str
    state: str = Field(description="`committed` or `aborted`.")


async def begin_transaction(
    transactions: LongTransactionsDep, response: Response, wanted: TransactionToBegin | None = None
) -> TransactionBegun:
    """Begin a transaction of several requests. Each request in it keeps it alive, up to a longest time.

    Its records cannot be read before the commit, not even in it. Readers of committed records wait at the first of
    them, so end it soon.
    """
    wanted = wanted or TransactionToBegin()
    begun = await transactions.begin(wanted.transactional_id, wanted.timeout_ms)
    response.headers["location"] = f"/api/v1/transactions/{quote(begun.transactional_id, safe='')}"
    return _shown(begun)


async def extend_transaction(
    transactions: LongTransactionsDep, transaction: TransactionId
) -> TransactionBegun:
    """Keep a transaction alive, as any request in it does."""
    return _shown(transactions.get(transaction))


async def commit_transaction(
    transactions: LongTransactionsDep, transaction: TransactionId
) -> TransactionEnded:
    """Commit a transaction: all that was written, staged and acknowledged in it, at once.

    Send it again if the answer is lost: the outcome is kept as long as an idempotency key, over a restart too. 404
    means that it is not known whether there ever was such a transaction, or that the broker ended before the commit.
    """
    await transactions.commit(transaction)
    return TransactionEnded(id=transaction, state=Outcome.COMMITTED)


async def abort_transaction(
    transactions: LongTransactionsDep, transaction: TransactionId
) -> TransactionEnded:
    """Abort a transaction: nothing of it is ever seen. A repetition changes nothing."""
    await transactions.abort(transaction)
    return TransactionEnded(id=transaction, state=Outcome.ABORTED)


def _shown(one: LongTransactionInfo) -> TransactionBegun:
    return TransactionBegun(
        id=one.id,
        transactional_id=one.transactional_id,
        timeout_ms=one.timeout_ms,
        expires=iso_time(one.expires_ms),
        expires_ms=one.expires_ms,
    )
