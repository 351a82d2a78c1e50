"""ListConfigResources: the resources with settings that DescribeConfigs returns (KIP-714, KIP-1142)."""

from __future__ import annotations

from core.errors import ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from core.protocol.traits import lists_client_metrics_alone
from core.security.acl import Operation, ResourceType

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_TYPES = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


def list_config_resources(
    session: KafkaSession, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Return the resources of the types asked for, of all types if none is; UNSUPPORTED_VERSION for an unknown type.

    Of groups those are listed that have settings of their own; of client metrics none has.
    """
    if (denied := session.rights.denial(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)) is not None:
        return ListConfigResourcesResponse(error_code=denied.code)
    if lists_client_metrics_alone(session.version):
        return ListConfigResourcesResponse()
    if not set(request.resource_types) <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker_id) for broker_id, _, _ in session.brokers()]
    names = {
        _TOPIC: [topic.name for topic in session.listener.broker.topics.list(include_internal=True)],
        _BROKER: brokers,
        _BROKER_LOGGER: brokers,
        _GROUP: session.listener.broker.group_configs.groups(),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, kind)
            for kind in _TYPES
            if kind in request.resource_types or not request.resource_types
            for name in names.get(kind, ())
        ]
    )


HANDLERS = table(
    Handler(74, list_config_resources, needs=((Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),))
)
