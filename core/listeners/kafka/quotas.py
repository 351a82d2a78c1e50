"""DescribeClientQuotas, AlterClientQuotas: there are no quotas, so none is found and none is set (KIP-546)."""

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
)
from core.security.acl import Operation, ResourceType

_IP = "ip"
_ENTITIES = ("user", "client-id", _IP)
# How a filter matches: this name, the default entity, any entity.
_EXACT, _DEFAULT, _ANY = 0, 1, 2


def describe_client_quotas(
    session: KafkaSession, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return an empty list; INVALID_REQUEST or UNSUPPORTED_VERSION for a filter that no quota can match."""
    if (denied := session.rights.denial(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)) is not None:
        return DescribeClientQuotasResponse(error_code=denied.code, entries=None)
    try:
        for component in request.components:
            _check_component(component)
        _check_types([component.entity_type for component in request.components])
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    # Kafka 4.1 says "" and not null where there is no error.
    return DescribeClientQuotasResponse(error_message="", entries=[])


def _check_component(component: ComponentData) -> None:
    if not component.entity_type:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "The entity type of a filter is empty.")
    if component.match_type not in (_EXACT, _DEFAULT, _ANY):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown match type {component.match_type}; 0 is a name, 1 the default, 2 any.",
        )
    if (component.match is None) == (component.match_type == _EXACT):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "A filter has a name if its match type is 0, and null otherwise."
        )
    if component.entity_type not in _ENTITIES:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unsupported entity type {component.entity_type!r}; use one of {', '.join(_ENTITIES)}.",
        )


def _check_types(entity_types: Sequence[str]) -> None:
    if len(set(entity_types)) < len(entity_types):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "An entity type is named more than once.")
    if _IP in entity_types and len(entity_types) > 1:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "An entity of type 'ip' cannot be combined with a user or a client id."
        )


def alter_client_quotas(
    session: KafkaSession, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Refuse to set a quota with INVALID_REQUEST; to remove one succeeds, for there is none."""
    return AlterClientQuotasResponse(entries=[_alter(session, entry) for entry in request.entries])


def _alter(session: KafkaSession, entry: EntryData) -> AlterClientQuotasResponseEntryData:
    code, message = ErrorCode.NONE, None
    try:
        session.rights.require(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        types = [entity.entity_type for entity in entry.entity]
        if not types or not {*types} <= {*_ENTITIES}:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"A quota belongs to entities of the types {', '.join(_ENTITIES)}, not to {types}.",
            )
        _check_types(types)
        if refused := [op.key for op in entry.ops if not op.remove]:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"This broker has no client quotas: {', '.join(refused)} cannot be set.",
            )
    except BrokerError as error:
        code, message = error.code, error.message
    return AlterClientQuotasResponseEntryData(code, message, entry.entity)


HANDLERS = table(
    Handler(48, describe_client_quotas, needs=((Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)),
    Handler(49, alter_client_quotas, needs=((Operation.ALTER_CONFIGS, ResourceType.CLUSTER),)),
)
