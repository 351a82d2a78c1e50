"""Client quotas over HTTP: one item for each user, client id, both, or IP address that has any.

curl -X PUT -d '{"entity": [{"type": "user", "name": "alice"}], "quotas": {"producer_byte_rate": 1000000}}' …/quotas
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr

from app.errors import Problem
from app.native.dependencies import BrokerDep
from app.native.schemas import Shape
from core.errors import BrokerError, ErrorCode
from core.security.quotas import entity_of
from core.vocabulary.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    Entity,
    QuotaEntry,
    QuotaFilter,
)

_Rate = Annotated[StrictInt | StrictFloat, Field(gt=0, le=2**53)]
_Bytes = Annotated[StrictInt, Field(gt=0, le=2**53)]
_Name = Annotated[str | None, Query(max_length=1000)]


class EntityPart(Shape):
    """A user, a client id or an IP address. Without a name it means all that have no quota of their own."""

    type: Literal["user", "client-id", "ip"]
    name: StrictStr | None = Field(
        None, description="Null: the default.", examples=["alice"], max_length=1000
    )


class QuotaValues(Shape):
    """Quotas of an entity. What is left out has no limit, or that of a less specific entity."""

    producer_byte_rate: _Bytes | None = Field(None, description="Bytes written per second.")
    consumer_byte_rate: _Bytes | None = Field(None, description="Bytes read per second.")
    request_percentage: _Rate | None = Field(
        None, description="Percent of the time of the broker's event loop, over all listeners."
    )
    controller_mutation_rate: _Rate | None = Field(
        None, description="Partitions created and deleted per second."
    )
    connection_creation_rate: _Bytes | None = Field(
        None, description="New connections per second; for IP addresses, which have no other quota."
    )


class QuotaToSet(Shape):
    """The quotas of an entity, in the place of all that it has."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"entity": [{"type": "user", "name": "alice"}], "quotas": {"producer_byte_rate": 1000000}}
    ]})  # fmt: skip

    entity: list[EntityPart] = Field(
        min_length=1, max_length=2, description="A user, a client id, both, or an IP address."
    )
    quotas: QuotaValues


class QuotaDetail(BaseModel):
    """An entity with its quotas."""

    entity: list[EntityPart]
    quotas: QuotaValues


class QuotaList(BaseModel):
    """All entities that have quotas."""

    items: list[QuotaDetail]


def _detail(entry: QuotaEntry) -> QuotaDetail:
    parts = [EntityPart.model_validate({"type": kind, "name": name}) for kind, name in entry.entity]
    values = {key: int(value) if float(value).is_integer() else value for key, value in entry.values.items()}
    return QuotaDetail(entity=parts, quotas=QuotaValues.model_validate(values))


def _changes(entity: Entity, wanted: QuotaValues) -> dict[str, float | None]:
    """Return all keys that an entity may have, and those that it may not if they have a value."""
    of_address = entity[0][0] == IP
    changes: dict[str, float | None] = {}
    for key, value in wanted.model_dump().items():
        if value is not None:
            changes[key] = float(value)
        elif (key == CONNECTION_CREATION_RATE) == of_address:
            changes[key] = None
    return changes


@contextmanager
def _invalid_as_422() -> Iterator[None]:
    """Refuse an entity or a value that cannot be as the schema refuses others: the request could be read."""
    try:
        yield
    except BrokerError as error:
        if error.code is not ErrorCode.INVALID_REQUEST:
            raise
        raise Problem("invalid-request", error.message) from None


async def list_quotas(broker: BrokerDep) -> QuotaList:
    """The quotas of all entities. The most specific entity that has a quota of a key counts for a client."""
    return QuotaList(items=[_detail(entry) for entry in broker.quotas.describe(QuotaFilter())])


async def put_quotas(broker: BrokerDep, wanted: QuotaToSet) -> QuotaDetail:
    """Set the quotas of an entity; what it had is replaced. They are in force when this returns."""
    with _invalid_as_422():
        entity = entity_of([(part.type, part.name) for part in wanted.entity])
        changes = _changes(entity, wanted.quotas)
        if not any(value is not None for value in changes.values()):
            raise Problem("invalid-request", "`quotas` has no quota; DELETE removes those of an entity.")
        values = await broker.quotas.alter(entity, changes)
    return _detail(QuotaEntry(entity, values))


async def delete_quotas(
    broker: BrokerDep,
    user: _Name = None,
    client_id: _Name = None,
    ip: _Name = None,
    default_user: Annotated[bool, Query(description="The default of users.")] = False,
    default_client_id: Annotated[bool, Query(description="The default of client ids.")] = False,
    default_ip: Annotated[bool, Query(description="The default of IP addresses.")] = False,
) -> Response:
    """Delete all quotas of exactly this entity."""
    parts: list[tuple[str, str | None]] = []
    for kind, name, default in (
        (USER, user, default_user), (CLIENT_ID, client_id, default_client_id), (IP, ip, default_ip),
    ):  # fmt: skip
        if name is not None and default:
            raise Problem("invalid-request", f"Give a {kind} or the default, not both.")
        if name is not None or default:
            parts.append((kind, name))
    if not parts:
        raise Problem("invalid-request", "Name the entity: `user`, `client_id` or `ip`, or a default.")
    with _invalid_as_422():
        await broker.quotas.remove(tuple(parts))
    return Response(status_code=204)
