"""DescribeClientQuotas, AlterClientQuotas: the client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntryData,
)
from core.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    ValueData,
)
from core.protocol.messages.describe_client_quotas import EntryData as DescribedEntry
from core.security.acl import Operation, ResourceType
from core.security.authorizer import is_denial
from core.security.quotas import ENTITY_TYPES
from core.vocabulary.quotas import IP, Match, QuotaFilter

# The words of Kafka.
_DENIED = "Cluster authorization failed."


def describe_client_quotas(
    session: KafkaSession, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the quotas that fit a filter; INVALID_REQUEST or UNSUPPORTED_VERSION if none can fit it."""
    try:
        session.rights.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        found = session.broker.quotas.describe(_filter(request))
    except BrokerError as error:
        message = None if is_denial(error) else error.message
        return DescribeClientQuotasResponse(error_code=error.code, error_message=message, entries=None)
    # Kafka 4.1 says "" and not null where there is no error.
    return DescribeClientQuotasResponse(
        error_message="",
        entries=[
            DescribedEntry(
                [EntityData(kind, name) for kind, name in entry.entity],
                [ValueData(key, value) for key, value in entry.values.items()],
            )
            for entry in found
        ],
    )


def _filter(request: DescribeClientQuotasRequest) -> QuotaFilter:
    for component in request.components:
        _check_component(component)
    _check_types([component.entity_type for component in request.components])
    parts = tuple((one.entity_type, Match(one.match_type), one.match) for one in request.components)
    return QuotaFilter(parts, request.strict)


def _check_component(component: ComponentData) -> None:
    if not component.entity_type:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "The entity type of a filter is empty.")
    if component.match_type not in tuple(Match):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown match type {component.match_type}; 0 is a name, 1 the default, 2 any.",
        )
    if (component.match is None) == (component.match_type == Match.EXACT):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "A filter has a name if its match type is 0, and null otherwise."
        )
    if component.entity_type not in ENTITY_TYPES:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unsupported entity type {component.entity_type!r}; use one of {', '.join(ENTITY_TYPES)}.",
        )


def _check_types(entity_types: Sequence[str]) -> None:
    if len(set(entity_types)) < len(entity_types):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "An entity type is named more than once.")
    if IP in entity_types and len(entity_types) > 1:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "An entity of type 'ip' cannot be combined with a user or a client id."
        )


async def alter_client_quotas(
    session: KafkaSession, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Set and remove quotas, for each entity all or none. The error of an entity is INVALID_REQUEST."""
    return AlterClientQuotasResponse(
        entries=[await _alter(session, entry, request.validate_only) for entry in request.entries]
    )


async def _alter(
    session: KafkaSession, entry: EntryData, validate_only: bool
) -> AlterClientQuotasResponseEntryData:
    try:
        await session.broker.quotas.alter(
            tuple((one.entity_type, one.entity_name) for one in entry.entity),
            {one.key: None if one.remove else one.value for one in entry.ops},
            validate_only=validate_only,
        )
    except BrokerError as error:
        message = _DENIED if is_denial(error) else error.message
        return AlterClientQuotasResponseEntryData(error.code, message, entry.entity)
    return AlterClientQuotasResponseEntryData(0, None, entry.entity)


HANDLERS = table(
    Handler(48, describe_client_quotas, needs=((Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)),
    Handler(49, alter_client_quotas, needs=((Operation.ALTER_CONFIGS, ResourceType.CLUSTER),)),
)
