"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the settings of topics, and the broker's to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.topics import ConfigEntry
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.topics import CONFIG_SOURCES
from core.protocol.messages import alter_configs as alter
from core.protocol.messages import incremental_alter_configs as incremental
from core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from core.listeners.kafka.door import KafkaSession

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7}
_STATIC_BROKER = 4


def describe_configs(session: KafkaSession, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """All settings of each topic or of the broker, or those named, with their source."""
    return DescribeConfigsResponse(results=[_describe(session, r, request) for r in request.resources])


def _describe(
    session: KafkaSession, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        if resource.resource_type == _TOPIC:
            entries = session.broker.describe_configs(resource.resource_name)
            configs = [_topic_entry(entry, request) for entry in entries]
        else:
            _check_broker(session, resource.resource_type, resource.resource_name)
            configs = [
                DescribeConfigsResourceResult(
                    name, value, True, _STATIC_BROKER, False, False, config_type=_TYPES["STRING"]
                )
                for name, value in session.broker.broker_configs().items()
            ]
    except BrokerError as error:
        return DescribeConfigsResult(
            error.code, error.message, resource.resource_type, resource.resource_name
        )
    if resource.configuration_keys:
        wanted = set(resource.configuration_keys)
        configs = [c for c in configs if c.name in wanted]
    return DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name, configs)


def _topic_entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    source = CONFIG_SOURCES[entry.source]
    synonyms = []
    if request.include_synonyms:
        synonyms.append(DescribeConfigsSynonym(entry.name, entry.value, source))
        if entry.source != "default":
            default = DescribeConfigsSynonym(entry.name, entry.definition.default, CONFIG_SOURCES["default"])
            synonyms.append(default)
    return DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        False,
        source,
        entry.is_default,
        False,
        synonyms,
        _TYPES[entry.definition.type],
        entry.definition.doc if request.include_documentation else None,
    )


def _check_broker(session: KafkaSession, resource_type: int, name: str) -> None:
    if resource_type != _BROKER:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Resource type {resource_type} has no settings here; 2 is a topic, 4 a broker.",
        )
    if name not in ("", str(session.broker.config.broker_id)):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"There is no broker {name!r}; it is {session.broker.config.broker_id}.",
        )


async def alter_configs(
    session: KafkaSession, request: alter.AlterConfigsRequest
) -> alter.AlterConfigsResponse:
    """Replace all overrides of each topic by those given."""
    responses = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            _check_topic(resource.resource_type)
            given: dict[str, str | None] = {c.name: c.value for c in resource.configs}
            reset = dict.fromkeys(session.broker.topic(resource.resource_name).overrides)
            await session.broker.alter_configs(
                resource.resource_name, {**reset, **given}, validate_only=request.validate_only
            )
        except BrokerError as error:
            code, message = error.code, error.message
        responses.append(
            alter.AlterConfigsResourceResponse(code, message, resource.resource_type, resource.resource_name)
        )
    return alter.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    session: KafkaSession, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from single settings of each topic (KIP-339)."""
    responses = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            _check_topic(resource.resource_type)
            current = {e.name: e for e in session.broker.describe_configs(resource.resource_name)}
            changes: dict[str, str | None] = {}
            for config in resource.configs:
                if config.name in changes:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST,
                        f"Config {config.name!r} stands more than once for one topic.",
                    )
                changes[config.name] = _operate(config, current.get(config.name))
            await session.broker.alter_configs(
                resource.resource_name, changes, validate_only=request.validate_only
            )
        except BrokerError as error:
            code, message = error.code, error.message
        responses.append(
            incremental.AlterConfigsResourceResponse(
                code, message, resource.resource_type, resource.resource_name
            )
        )
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


def _operate(config: incremental.AlterableConfig, entry: ConfigEntry | None) -> str | None:
    operation, value = config.config_operation, config.value
    if operation == _DELETE:
        return None
    if value is None:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"Config {config.name!r} needs a value.", config=config.name
        )
    if operation == _SET:
        return value
    if operation not in (_APPEND, _SUBTRACT):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation {operation}; 0 sets, 1 deletes, 2 appends, 3 subtracts.",
        )
    if entry is not None and entry.definition.type != "LIST":
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"Config {config.name!r} is no list: it can be set or deleted, not appended to.",
            config=config.name,
        )
    items = [] if entry is None else _items(entry.value)
    given = _items(value)
    if operation == _APPEND:
        return ",".join([*items, *(i for i in given if i not in items)])
    return ",".join(i for i in items if i not in given)


def _items(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _check_topic(resource_type: int) -> None:
    if resource_type != _TOPIC:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "Only the settings of topics (resource type 2) can be changed while the broker runs.",
        )


HANDLERS = table(
    Handler(32, describe_configs), Handler(33, alter_configs), Handler(44, incremental_alter_configs)
)
