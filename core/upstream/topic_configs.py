"""The settings of topics: DescribeConfigs and IncrementalAlterConfigs (KIP-339)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.client.cluster import ClusterClient
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from core.topic_config import DEFINITIONS
from core.upstream.failures import answer_error
from core.vocabulary.topic import ConfigEntry, Synonym

_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1
_FROM_TOPIC = 1
_SOURCES = {1: "topic", 2: "dynamic_broker", 3: "dynamic_default", 4: "static", 5: "default"}
_TYPES = {
    1: "BOOLEAN", 2: "STRING", 3: "INT", 4: "SHORT", 5: "LONG", 6: "DOUBLE", 7: "LIST", 8: "CLASS", 9: "PASSWORD",
}  # fmt: skip
# Topics in one request: each has about 35 settings with their documentation.
_AT_ONCE = 100

Known = list[ConfigEntry] | BrokerError


def overrides_of(known: Known | None) -> dict[str, str]:
    """Return the settings that a topic has itself; empty if they are not known."""
    if known is None or isinstance(known, BrokerError):
        return {}
    return {one.name: one.value for one in known if one.source == "topic" and one.value is not None}


class TopicConfigs:
    """The settings of topics as they were read last."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._known: dict[str, Known] = {}

    def get(self, name: str) -> Known | None:
        """Return the settings of a topic, or why they cannot be read; None if they were not read."""
        return self._known.get(name)

    def forget(self, name: str) -> None:
        """Forget a deleted topic."""
        self._known.pop(name, None)

    async def look(self, names: Collection[str]) -> None:
        """Read the settings of topics. Raises LinkLost."""
        ordered = list(names)
        for first in range(0, len(ordered), _AT_ONCE):
            await self._look(ordered[first : first + _AT_ONCE])

    async def _look(self, names: list[str]) -> None:
        resources = [DescribeConfigsResource(_TOPIC_RESOURCE, name, None) for name in names]
        # The texts of many topics would be a megabyte; ours say the same.
        request = DescribeConfigsRequest(resources, include_documentation=len(names) == 1)
        answer: DescribeConfigsResponse = await self._cluster.ask_any(request)
        for result in answer.results:
            self._known[result.resource_name] = _entries(result)

    async def alter(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Change settings; None puts one back to its default. Raises INVALID_CONFIG and what the cluster refuses."""
        resource = AlterConfigsResource(
            _TOPIC_RESOURCE,
            name,
            [
                AlterableConfig(key, _DELETE if value is None else _SET, value)
                for key, value in changes.items()
            ],
        )
        request = IncrementalAlterConfigsRequest([resource], validate_only)
        answer: IncrementalAlterConfigsResponse = await self._cluster.ask_controller(request)
        result = answer.responses[0]
        if result.error_code:
            raise answer_error(
                result.error_code, result.error_message, f"The settings of {name!r} cannot be changed"
            )

    async def settle(self, name: str, overrides: Mapping[str, str], seconds: float) -> None:
        """Read the settings until a broker shows the change; give up in silence after some seconds."""
        clock = self._cluster.clock
        deadline = clock.monotonic() + seconds
        attempt = 0
        while True:
            await self._look([name])
            known = self._known.get(name)
            if isinstance(known, BrokerError) or overrides_of(known) == overrides:
                return
            if clock.monotonic() >= deadline:
                return
            await self._cluster.pause(attempt)
            attempt += 1


def _entries(result: DescribeConfigsResult) -> Known:
    if result.error_code:
        error = answer_error(
            result.error_code,
            result.error_message,
            f"The settings of {result.resource_name!r} cannot be read",
        )
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # As a denial of this process's own: the topic is shown without its settings.
            error.details["resource_type"] = "TOPIC"
        return error
    return sorted((_entry(one) for one in result.configs), key=lambda one: one.name)


def _entry(one: DescribeConfigsResourceResult) -> ConfigEntry:
    ours = DEFINITIONS.get(one.name)
    source = one.config_source if one.config_source >= 0 else (5 if one.is_default else _FROM_TOPIC)
    kind = _TYPES.get(one.config_type)
    if kind is None:
        kind = ours.type if ours is not None else "STRING"
    return ConfigEntry(
        name=one.name,
        value=None if one.is_sensitive else one.value,
        source=_SOURCES.get(source, "default"),
        type=kind,
        doc=one.documentation or (ours.doc if ours is not None else ""),
        synonyms=tuple(
            Synonym(s.name, s.value or "", _SOURCES.get(s.source, "default")) for s in one.synonyms
        ),
        read_only=one.read_only,
    )
