"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the settings of topics, brokers and loggers.

    resource      described                                  changed
    2   topic     all settings, and older ones that are set  all settings
    4   broker    what has an equivalent here                the defaults of topics and a few others
    8   loggers   Python's loggers of this process           their levels, until a restart
    16  metrics   nothing: no client is asked for metrics    refused
    32  group     all settings that a group may have         the same (KIP-848, KIP-932)

The broker without a name is all brokers: it has what was set at run time for all of them.
Refusals have Kafka's codes and words. Sources: KIP-133, -226, -339, -412, -569, -848, -932.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from core.broker.broker_configs import CLUSTER, DYNAMIC
from core.errors import BrokerError, ErrorCode
from core.groups.group_configs import GROUP_DEFINITIONS
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.listeners.kafka.loggers import describe_loggers, set_levels
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
from core.security.acl import Operation, ResourceType
from core.topic_config import DEFINITIONS, Definition, list_items
from core.vocabulary.topic import ConfigEntry, check_topic_name

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_OPERATIONS = {_SET: "SET", _DELETE: "DELETE", _APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}
_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7}
_UNKNOWN_TYPE = 0

Changes = Mapping[str, str | None]


# --- describe -----------------------------------------------------------------------------------------------


def describe_configs(session: KafkaSession, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Answer all settings of each resource, or those named, with their sources."""
    return DescribeConfigsResponse(results=[_describe(session, r, request) for r in request.resources])


def _describe(
    session: KafkaSession, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        configs = _described(session, kind, name, request)
    except BrokerError as error:
        return DescribeConfigsResult(error.code, error.message, kind, name)
    if resource.configuration_keys:
        wanted = set(resource.configuration_keys)
        configs = [c for c in configs if c.name in wanted]
    return DescribeConfigsResult(0, None, kind, name, configs)


def _described(
    session: KafkaSession, kind: int, name: str, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    _require(session, Operation.DESCRIBE_CONFIGS, kind, name)
    broker = session.listener.broker
    if kind == _TOPIC:
        check_topic_name(name)
        return [_result(entry, request) for entry in broker.topics.describe_configs(name)]
    if kind == _BROKER:
        configs = broker.broker_configs
        if name == CLUSTER:
            return [_result(entry, request) for entry in configs.of_cluster()]
        _check_own(session, name, " or empty string")
        listeners = [one for one in broker.endpoints if one.scheme == "kafka"] or [session.listener.endpoint]
        return [
            _result(entry, request)
            for entry in configs.of_broker(listeners, session.advertised, session.listener.endpoint)
        ]
    if kind == _LOGGER:
        _require_name(name, "Broker id")
        _check_own(session, name, "")
        source = CONFIG_SOURCES["logger"]
        return [
            DescribeConfigsResourceResult(logger, level, False, source, config_type=_UNKNOWN_TYPE)
            for logger, level in describe_loggers().items()
        ]
    if kind == _METRICS:
        _require_name(name, "Client metrics subscription name")
        return []
    if kind == _GROUP:
        _require_name(name, "Group name")
        return [_result(entry, request) for entry in broker.group_configs.describe(name)]
    raise _unknown_resource(kind)


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [DescribeConfigsSynonym(s.name, s.value, CONFIG_SOURCES[s.source]) for s in entry.synonyms]
    return DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        entry.read_only,
        CONFIG_SOURCES[entry.source],
        entry.source == "default",
        False,
        synonyms,
        _TYPES[entry.type],
        entry.doc if request.include_documentation else None,
    )


# --- change -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Resource:
    """What can be changed of one resource.

    `current` is what it has set itself, `in_force` what lists are appended to; `alter` is the verb that changes it.
    """

    current: Mapping[str, str]
    in_force: Mapping[str, str]
    definitions: Mapping[str, Definition]
    alter: Callable[[Changes, bool], Awaitable[None]]


def _resource(session: KafkaSession, kind: int, name: str) -> _Resource:
    _require(session, Operation.ALTER_CONFIGS, kind, name)
    broker = session.listener.broker
    if kind == _TOPIC:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")

        async def alter_topic(changes: Changes, validate_only: bool) -> None:
            await session.broker.topics.alter_configs(name, changes, validate_only=validate_only)

        own = broker.topics.get(name).overrides
        return _Resource(own, {**broker.broker_configs.topic_defaults, **own}, DEFINITIONS, alter_topic)
    if kind == _BROKER:

        async def alter_broker(changes: Changes, validate_only: bool) -> None:
            changing = broker.broker_configs.alter(name, changes, validate_only=validate_only)
            await (
                changing
                if validate_only
                else session.rights.noted("ALTER_CONFIGS", f"BROKER:{name}", changing)
            )

        own = broker.broker_configs.dynamic(name)
        return _Resource(own, own, DYNAMIC, alter_broker)
    if kind == _GROUP:

        async def alter_group(changes: Changes, validate_only: bool) -> None:
            changing = broker.group_configs.alter(name, changes, validate_only=validate_only)
            await (
                changing
                if validate_only
                else session.rights.noted("ALTER_CONFIGS", f"GROUP:{name}", changing)
            )

        own = broker.group_configs.own(name)
        return _Resource(own, own, GROUP_DEFINITIONS, alter_group)
    if kind == _METRICS:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "This broker does not ask clients for metrics; there is nothing to set.",
        )
    raise _unknown_resource(kind)


async def alter_configs(
    session: KafkaSession, request: alter.AlterConfigsRequest
) -> alter.AlterConfigsResponse:
    """Replace all that each resource has set itself by what is given."""
    responses = []
    repeated = _repeated(request.resources)
    for one in request.resources:
        code, message = ErrorCode.NONE, None
        kind, name = one.resource_type, one.resource_name
        try:
            _require_once((kind, name), repeated)
            _refuse_duplicates([c.name for c in one.configs])
            resource = _resource(session, kind, name)
            given = {c.name: _value(c.name, c.value) for c in one.configs}
            await resource.alter({**dict.fromkeys(resource.current), **given}, request.validate_only)
        except BrokerError as error:
            code, message = error.code, error.message
        responses.append(alter.AlterConfigsResourceResponse(code, message, kind, name))
    return alter.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    session: KafkaSession, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from single settings of each resource (KIP-339)."""
    responses = []
    repeated = _repeated(request.resources)
    for one in request.resources:
        code, message = ErrorCode.NONE, None
        kind, name = one.resource_type, one.resource_name
        try:
            _require_once((kind, name), repeated)
            _refuse_duplicates([c.name for c in one.configs])
            if kind == _LOGGER:
                _require(session, Operation.ALTER_CONFIGS, kind, name)
                _set_levels(session, name, one.configs, request.validate_only)
            else:
                resource = _resource(session, kind, name)
                changes = {
                    c.name: _operate(c, resource)
                    for c in one.configs
                    # As in Kafka, a setting that cannot be set may be deleted: it has no value.
                    if c.config_operation != _DELETE or c.name in resource.definitions
                }
                await resource.alter(changes, request.validate_only)
        except BrokerError as error:
            code, message = error.code, error.message
        responses.append(incremental.AlterConfigsResourceResponse(code, message, kind, name))
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


def _operate(config: incremental.AlterableConfig, resource: _Resource) -> str | None:
    """The new value of a setting; None to remove it."""
    name, operation = config.name, config.config_operation
    if operation == _DELETE:
        return None
    if operation not in _OPERATIONS:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    value = _value(name, config.value)
    if operation == _SET:
        return value
    one = resource.definitions.get(name)
    if one is not None and one.type != "LIST":
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_OPERATIONS[operation]} to key {name} because its type is not LIST.",
            config=name,
        )
    items = list_items(resource.in_force.get(name, one.default if one is not None else ""))
    given = list_items(value)
    if operation == _APPEND:
        return ",".join([*items, *(i for i in given if i not in items)])
    return ",".join(i for i in items if i not in given)


def _set_levels(
    session: KafkaSession, name: str, configs: Sequence[incremental.AlterableConfig], validate_only: bool
) -> None:
    """Set the levels of loggers of this broker (KIP-412); they hold until it is restarted."""
    _check_own(session, name, "")
    levels: dict[str, str | None] = {}
    for config in configs:
        operation = config.config_operation
        if operation not in (_SET, _DELETE):
            word = _OPERATIONS.get(operation, str(operation))
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource"
            )
        levels[config.name] = None if operation == _DELETE else _value(config.name, config.value)
    set_levels(levels, validate_only=validate_only)


def _require(session: KafkaSession, operation: Operation, kind: int, name: str) -> None:
    """Raise the error of a denied operation on the topic, the group, or for other resources the cluster."""
    if kind == _TOPIC:
        session.rights.require(operation, ResourceType.TOPIC, name)
    elif kind == _GROUP:
        session.rights.require(operation, ResourceType.GROUP, name)
    else:
        session.rights.require(operation, ResourceType.CLUSTER)


# --- checks -------------------------------------------------------------------------------------------------


def _value(name: str, value: str | None) -> str:
    if value is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}", config=name)
    return value


def _repeated(
    resources: Sequence[alter.AlterConfigsResource | incremental.AlterConfigsResource],
) -> set[tuple[int, str]]:
    counted = Counter((one.resource_type, one.resource_name) for one in resources)
    return {resource for resource, count in counted.items() if count > 1}


def _require_once(resource: tuple[int, str], repeated: set[tuple[int, str]]) -> None:
    if resource in repeated:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _refuse_duplicates(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _check_own(session: KafkaSession, name: str, alternative: str) -> None:
    """Raise INVALID_REQUEST unless `name` is the id of this broker: only it knows its own settings."""
    own = session.broker.config.broker_id
    if name == str(own):
        return
    if not name.removeprefix("-").isdecimal():
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name[:100]}")
    raise BrokerError(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {own}{alternative}, but received {name[:100]}",
    )


def _require_name(name: str, what: str) -> None:
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")


def _unknown_resource(kind: int) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


HANDLERS = table(
    Handler(32, describe_configs, needs=((Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC),)),
    Handler(33, alter_configs, needs=((Operation.ALTER_CONFIGS, ResourceType.TOPIC),)),
    Handler(44, incremental_alter_configs, needs=((Operation.ALTER_CONFIGS, ResourceType.TOPIC),)),
)
