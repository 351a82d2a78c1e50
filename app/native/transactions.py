"""Transactional ids for administrators: list, describe, and abort the open transaction of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import AfterValidator, BaseModel, Field

from app.http.parameters import PATH_NAME
from app.http.request import invalid_parameter
from app.native import pages
from app.native.dependencies import BrokerDep, SharedDep
from app.native.record_json import iso_time
from core.vocabulary.transactions import TransactionInfo, TransactionState

_STATES = {state.kafka_name.lower(): state for state in TransactionState}
_STATE_NAMES = [state.kafka_name for state in TransactionState]
_STATE_PATTERN = "^(({0})(,({0}))*)?$".format("|".join(_STATE_NAMES))


def _with_a_path(name: str) -> str:
    """Refuse names with which no client's URL would arrive."""
    if name in (".", ".."):
        raise invalid_parameter(
            "transactional_id", "A transactional id of that name has no path: '.' and '..' lead elsewhere."
        )
    return name


TransactionalId = Annotated[
    str,
    AfterValidator(_with_a_path),
    Path(
        description="The `transactional.id` of a producer.",
        examples=["payments-1"],
        max_length=1000,
        json_schema_extra=PATH_NAME,
    ),
]


# --- shapes ------------------------------------------------------------------------------------------------


class TransactionSummary(BaseModel):
    """A transactional id in a listing, with its open transaction or the last one."""

    transactional_id: str
    state: str = Field(
        description="`Ongoing`: a transaction is open. `PrepareCommit` and `PrepareAbort`: it is ending.",
        json_schema_extra={"enum": [*_STATE_NAMES]},
    )
    producer_id: int
    producer_epoch: int
    timeout_ms: int = Field(description="How long a transaction may be open.")
    started: str | None = Field(description="When the last transaction began; null if that is not known.")
    started_ms: int | None
    age_ms: int | None = Field(description="For how long a transaction is open; null if none is open.")
    expires: str | None = Field(
        description="When the open transaction will be aborted; null if none is open."
    )
    expires_ms: int | None
    partitions: int = Field(description="Partitions of the open transaction.")


class TransactionPage(BaseModel):
    """Some transactional ids; with `next_page_token` there are more."""

    items: list[TransactionSummary]
    next_page_token: str | None


class TransactionPartition(BaseModel):
    """A partition of an open transaction. Readers of committed records read up to the lowest first offset in it."""

    topic: str
    partition: int
    first_offset: int | None = Field(description="Where its records begin; null if it has written none.")


class TransactionDetail(TransactionSummary):
    """A transactional id with what its open transaction has."""

    partition_details: list[TransactionPartition]
    groups: list[str] = Field(description="Groups whose offsets the open transaction commits.")


# --- routes ------------------------------------------------------------------------------------------------


async def list_transactions(
    broker: BrokerDep,
    shared: SharedDep,
    prefix: Annotated[str, Query(description="Only ids that begin so.", max_length=1000)] = "",
    state: Annotated[
        str,
        Query(
            description="Only ids in these states, with commas: `Ongoing,Empty`.",
            max_length=200,
            json_schema_extra={"pattern": _STATE_PATTERN},
        ),
    ] = "",
    producer_id: Annotated[
        int | None, Query(ge=0, lt=2**63, description="Only the id that this producer writes under.")
    ] = None,
    longer_than_ms: Annotated[
        int | None,
        Query(ge=0, lt=2**63, description="Only transactions that are open for longer than this."),
    ] = None,
    page_size: Annotated[int | None, Query(ge=1, description="Transactional ids on one page.")] = None,
    page_token: Annotated[str | None, Query(description="`next_page_token` of the page before.")] = None,
) -> TransactionPage:
    """The transactional ids, one page at a time."""
    asked = pages.asked(shared.config, page_size, page_token)
    states = _states(state)
    now_ms = broker.clock.wall_ms()

    def passes(one: TransactionInfo) -> bool:
        age_ms = one.age_ms(now_ms)
        return (
            one.transactional_id.startswith(prefix)
            and (not states or one.state in states)
            and producer_id in (None, one.producer.producer_id)
            and (longer_than_ms is None or (age_ms is not None and age_ms > longer_than_ms))
        )

    found = (one for one in broker.transactions.all() if passes(one))
    page, token = asked.of(found, lambda one: one.transactional_id)
    return TransactionPage(items=[_summary(one, now_ms) for one in page], next_page_token=token)


async def get_transaction(broker: BrokerDep, transactional_id: TransactionalId) -> TransactionDetail:
    """A transactional id with the partitions and groups of its open transaction."""
    one = broker.transactions.get(transactional_id)
    summary = _summary(one, broker.clock.wall_ms())
    return TransactionDetail(
        **summary.model_dump(),
        partition_details=[
            TransactionPartition(
                topic=tp.topic, partition=tp.partition, first_offset=one.first_offsets.get(tp)
            )
            for tp in sorted(one.partitions)
        ],
        groups=list(one.groups),
    )


async def abort_transaction(broker: BrokerDep, transactional_id: TransactionalId) -> Response:
    """Abort the open transaction of an id, in all of its partitions and groups. Its client is fenced.

    409 if none is open. The transactional id stays: its client, or another one, may begin again.
    """
    await broker.transactions.terminate(transactional_id)
    return Response(status_code=204)


def _states(text: str) -> set[TransactionState]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = next((name for name in names if name.lower() not in _STATES), None)
    if unknown is not None:
        raise invalid_parameter(
            "state", f"There is no state {unknown[:40]!r}; there are: {', '.join(_STATE_NAMES)}."
        )
    return {_STATES[name.lower()] for name in names}


def _summary(one: TransactionInfo, now_ms: int) -> TransactionSummary:
    started = one.start_ms if one.start_ms >= 0 else None
    expires = one.expires_ms if one.expires_ms >= 0 else None
    return TransactionSummary(
        transactional_id=one.transactional_id,
        state=one.state.kafka_name,
        producer_id=one.producer.producer_id,
        producer_epoch=one.producer.producer_epoch,
        timeout_ms=one.timeout_ms,
        started=None if started is None else iso_time(started),
        started_ms=started,
        age_ms=one.age_ms(now_ms),
        expires=None if expires is None else iso_time(expires),
        expires_ms=expires,
        partitions=len(one.partitions),
    )
