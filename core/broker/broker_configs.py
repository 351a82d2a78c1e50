"""Settings of the broker under Kafka's names: their values, the sources of these, and which can be changed.

Four levels, the first that has a value wins (KIP-226):

    dynamic_broker    changed at run time for one broker
    dynamic_default   changed at run time for all brokers
    static            this process was started with it: a flag, the environment, SLUICE_TOPIC_DEFAULTS
    default           of the program

A topic's own settings win over all of them. The settings that can be changed at run time are the defaults of
topics and a few others (`DYNAMIC`), the same as in Kafka. Changes are in SQLite and come back after a restart; in a
cluster every broker has them. None of the settings is a secret, so none is sensitive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from core.broker.topic_table import TopicTable
from core.config import Config, Endpoint
from core.errors import BrokerError, ErrorCode
from core.log.manager import LogManager
from core.metadata.broker_configs import put_broker_configs
from core.metadata.store import CARRY_OVER, Store
from core.replication.controller import Controller
from core.topic_config import DEFINITIONS, LONG_MAX, Definition, TopicConfig, described, parse_topic_config
from core.vocabulary.topic import ConfigEntry, Synonym, TopicInfo

log = logging.getLogger(__name__)

# The name of the level that holds for all brokers.
CLUSTER = ""
PRODUCER_ID_EXPIRATION = "producer.id.expiration.ms"
_DEFAULTS = Config()

DYNAMIC: dict[str, Definition] = {
    one.name: one
    for one in (
        *(replace(one, name=one.broker) for one in DEFINITIONS.values() if one.broker),
        Definition(
            PRODUCER_ID_EXPIRATION,
            "INT",
            str(_DEFAULTS.producer_id_expiration_ms),
            "How long a partition remembers an idempotent producer that does not write.",
            minimum=1,
            broker=PRODUCER_ID_EXPIRATION,
        ),
    )
}
"""The settings of the broker that can be changed at run time, by name."""


# Times that Kafka has in milliseconds without a default, and in another setting with one: its name and default.
WHOLE_UNITS: dict[str, tuple[str, str]] = {
    "log.retention.ms": ("log.retention.hours", "168"),
    "log.roll.ms": ("log.roll.hours", "168"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours", "0"),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms", str(LONG_MAX)),
}


class Fixed(NamedTuple):
    """One setting: its name, type, meaning, and its value as text. `given`: it always comes from the start."""

    name: str
    type: str
    doc: str
    value: Callable[[Config], str]
    given: bool = False


FIXED: tuple[Fixed, ...] = (
    Fixed("advertised.listeners", "STRING", "The address for clients in Metadata.", lambda c: "", given=True),
    Fixed(
        "auto.create.topics.enable", "BOOLEAN", "Whether a topic is created when a client asks for it.",
        lambda c: str(c.auto_create_topics).lower(),
    ),
    Fixed("broker.id", "INT", "The number of this broker.", lambda c: str(c.broker_id), given=True),
    Fixed(
        "connections.max.idle.ms", "LONG", "How long a connection may be silent.",
        lambda c: str(c.idle_timeout_ms),
    ),
    Fixed(
        "default.replication.factor", "INT", "Replicas of a topic whose creator names no number.",
        lambda c: str(c.default_replication_factor),
    ),
    Fixed("delete.topic.enable", "BOOLEAN", "Whether topics can be deleted.", lambda c: "true"),
    Fixed("fetch.max.bytes", "INT", "Record bytes in one answer at most.", lambda c: str(c.fetch_max_bytes)),
    Fixed(
        "group.initial.rebalance.delay.ms", "INT", "How long an empty group waits for more members.",
        lambda c: str(c.group_initial_rebalance_delay_ms),
    ),
    Fixed(
        "group.max.session.timeout.ms", "INT", "The longest session timeout.",
        lambda c: str(c.group_max_session_timeout_ms),
    ),
    Fixed("group.max.size", "INT", "Members of one group at most.", lambda c: str(c.group_max_size)),
    Fixed(
        "group.min.session.timeout.ms", "INT", "The shortest session timeout.",
        lambda c: str(c.group_min_session_timeout_ms),
    ),
    Fixed(
        "listener.security.protocol.map", "STRING", "The security protocol of each listener name.",
        lambda c: "PLAINTEXT:PLAINTEXT",
    ),
    Fixed("listeners", "STRING", "The addresses of the Kafka listeners.", lambda c: "", given=True),
    Fixed(
        "log.cleaner.backoff.ms", "LONG", "How often logs are looked at for compaction.",
        lambda c: str(c.compaction_interval_ms),
    ),
    Fixed("log.cleaner.enable", "BOOLEAN", "Whether logs are compacted.", lambda c: "true"),
    Fixed("log.dirs", "STRING", "The data directory.", lambda c: str(c.data_dir.absolute()), given=True),
    Fixed(
        "log.flush.offset.checkpoint.interval.ms", "INT", "How often recovery points are written.",
        lambda c: str(c.checkpoint_interval_ms),
    ),
    Fixed(
        "log.retention.check.interval.ms", "LONG", "How often logs are looked at for retention.",
        lambda c: str(c.retention_check_interval_ms),
    ),
    Fixed("log.retention.hours", "INT", "The default of retention.ms, in hours.", lambda c: "168"),
    Fixed("log.roll.hours", "INT", "The default of segment.ms, in hours.", lambda c: "168"),
    Fixed(
        "max.connections", "INT", "Connections of one listener at most.", lambda c: str(c.max_connections)
    ),
    Fixed(
        "max.connections.per.ip", "INT", "Connections from one IP address at most.",
        lambda c: str(c.max_connections_per_ip),
    ),
    Fixed(
        "max.incremental.fetch.session.cache.slots", "INT", "Fetch sessions at most.",
        lambda c: str(c.max_fetch_sessions),
    ),
    Fixed("node.id", "INT", "The number of this broker.", lambda c: str(c.broker_id), given=True),
    Fixed(
        "num.partitions", "INT", "Partitions of a topic whose creator names no number.",
        lambda c: str(c.default_partitions),
    ),
    Fixed(
        "offset.metadata.max.bytes", "INT", "Metadata of one committed offset at most.",
        lambda c: str(c.offset_metadata_max_bytes),
    ),
    Fixed(
        "offsets.retention.check.interval.ms", "LONG", "How often committed offsets are looked at.",
        lambda c: str(c.offsets_retention_check_interval_ms),
    ),
    Fixed(
        "offsets.retention.minutes", "INT", "How long the offsets of an empty group are kept.",
        lambda c: str(c.offsets_retention_ms // 60_000),
    ),
    Fixed("process.roles", "LIST", "What this process does.", lambda c: "broker,controller", given=True),
    Fixed(
        "replica.fetch.backoff.ms", "INT", "How long a follower waits after an error.",
        lambda c: str(c.replica_retry_ms),
    ),
    Fixed(
        "replica.fetch.max.bytes", "INT", "Record bytes of one partition in a follower's fetch.",
        lambda c: str(c.replica_fetch_partition_max_bytes),
    ),
    Fixed(
        "replica.fetch.response.max.bytes", "INT", "Record bytes in a follower's fetch.",
        lambda c: str(c.replica_fetch_max_bytes),
    ),
    Fixed(
        "replica.fetch.wait.max.ms", "INT", "How long a follower's fetch waits.",
        lambda c: str(c.replica_fetch_wait_ms),
    ),
    Fixed(
        "replica.lag.time.max.ms", "LONG", "After how long a follower that lags leaves the in-sync set.",
        lambda c: str(c.replica_lag_time_max_ms),
    ),
    Fixed(
        "socket.request.max.bytes", "INT", "The largest request.", lambda c: str(c.max_frame_bytes)
    ),
)  # fmt: skip
"""The settings that need a restart: DescribeConfigs shows them as read-only. A name that is not here has none."""


class BrokerConfigs:
    """The settings of this broker, as `broker.broker_configs`. Touched on the event loop only."""

    def __init__(
        self,
        config: Config,
        store: Store,
        logs: LogManager,
        topics: TopicTable,
        controller: Controller,
    ) -> None:
        self._config = config
        self._store = store
        self._logs = logs
        self._topics = topics
        self._controller = controller
        self._static = _static_values(config)
        # By broker, `CLUSTER` being all of them: the values that were set at run time.
        self._dynamic: dict[str, dict[str, str]] = {}
        self.topic_defaults: dict[str, str] = {}
        self._take({})

    # --- reading -------------------------------------------------------------------------------------------

    def dynamic(self, broker: str) -> dict[str, str]:
        """Return what was set at run time for one broker, or for `CLUSTER`."""
        return dict(self._dynamic.get(broker, {}))

    def number(self, name: str) -> int:
        """Return the value in force of a number in `DYNAMIC`."""
        one = DYNAMIC[name]
        found = self._chain(one)
        return int(one.parse(found[0].value if found else one.default))

    def of_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Return all settings of a topic that sets `overrides` itself, by name."""
        return [self._entry(one, overrides.get(one.name)) for one in described(overrides)]

    def topic_config(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the settings of a stored topic with the broker's defaults.

        If the defaults of today contradict what the topic has set itself, the topic's settings hold alone.
        """
        try:
            return parse_topic_config(overrides, self.topic_defaults)
        except BrokerError as error:
            log.warning("topic %s: the broker's defaults do not hold for it: %s", name, error.message)
            return parse_topic_config(overrides)

    def of_broker(
        self, endpoints: Sequence[Endpoint], advertised: Endpoint, asked: Endpoint
    ) -> list[ConfigEntry]:
        """Return all settings of this broker, by name. `endpoints` are those of its Kafka listeners.

        `advertised` is the address for the client that asks, and `asked` its listener.
        """
        config = self._config
        addresses = {
            "listeners": ",".join(f"{_protocol(one)}://{_address(one)}" for one in endpoints),
            "advertised.listeners": f"{_protocol(asked)}://{_address(advertised)}",
        }
        entries = [self._entry(one, None, whole_units=False) for one in DYNAMIC.values()]
        for one in FIXED:
            value, default = addresses.get(one.name) or one.value(config), one.value(_DEFAULTS)
            source = "static" if one.given or value != default else "default"
            chain = [Synonym(one.name, value, source)]
            if source == "static" and not one.given:
                chain.append(Synonym(one.name, default, "default"))
            entries.append(ConfigEntry(one.name, value, source, one.type, one.doc, tuple(chain), True))
        return sorted(entries, key=lambda entry: entry.name)

    def of_cluster(self) -> list[ConfigEntry]:
        """Return what was set at run time for all brokers, by name."""
        entries = []
        for name, text in sorted(self._dynamic.get(CLUSTER, {}).items()):
            one = DYNAMIC[name]
            value = one.normal(text)
            synonyms = (Synonym(name, value, "dynamic_default"),)
            entries.append(ConfigEntry(name, value, "dynamic_default", one.type, one.doc, synonyms))
        return entries

    def _chain(self, one: Definition) -> list[Synonym]:
        """The values of a setting at the levels above the default, the one in force first."""
        name = one.broker or one.name
        own = str(self._config.broker_id)
        levels = (
            ("dynamic_broker", self._dynamic.get(own, {})),
            ("dynamic_default", self._dynamic.get(CLUSTER, {})),
            ("static", self._static),
        )
        return [
            Synonym(name, one.normal(values[name]), source) for source, values in levels if name in values
        ]

    def _entry(self, one: Definition, override: str | None, *, whole_units: bool = True) -> ConfigEntry:
        """One setting. Where `whole_units` is false and nothing sets it, a time that Kafka gives in hours is null."""
        chain = self._chain(one)
        in_hours = WHOLE_UNITS.get(one.broker)
        if in_hours is None and one.broker:
            chain.append(Synonym(one.broker, one.default, "default"))
        elif in_hours is not None and chain:
            chain.append(Synonym(*in_hours, "default"))
        if override is not None:
            chain.insert(0, Synonym(one.name, one.normal(override), "topic"))
        if chain:
            value: str | None = chain[0].value
            source = chain[0].source
        else:
            value, source = (one.default if whole_units or in_hours is None else None), "default"
        return ConfigEntry(one.name, value, source, one.type, one.doc, tuple(chain))

    # --- changing ------------------------------------------------------------------------------------------

    def load(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Take what was set at run time, as (broker, name, value), from the store."""
        dynamic: dict[str, dict[str, str]] = {}
        for broker, name, value in rows:
            # A later release may know more names; what it has stored stays in the store.
            if name in DYNAMIC:
                dynamic.setdefault(broker, {})[name] = value
        if dynamic != self._dynamic:
            self._take(dynamic)

    async def alter(
        self, broker: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings of one broker, or of all (`CLUSTER`); None removes a value. Durable when it returns.

        To remove what is not set is no error, whatever its name, as in Kafka: `kafka-reassign-partitions` removes the
        throttles of replication without looking whether there are any.

        Raises INVALID_REQUEST for a broker or a setting that there is not, or that needs a restart, and for a value
        out of bounds; NOT_CONTROLLER.
        """
        self._controller.require()
        self._check_broker(broker)
        fixed = sorted(name for name, value in changes.items() if value is not None and name not in DYNAMIC)
        if fixed:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: Set({', '.join(fixed)})"
            )
        changed = {name: dict(values) for name, values in self._dynamic.items()}
        values = changed.setdefault(broker, {})
        try:
            for name, value in changes.items():
                if value is None:
                    values.pop(name, None)
                else:
                    DYNAMIC[name].parse(value)
                    values[name] = value
            defaults = self._defaults(changed)
            parse_topic_config({}, defaults)
            for overrides in {tuple(topic.overrides.items()) for topic in self._topics.all()}:
                parse_topic_config(dict(overrides), defaults)
        except BrokerError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, error.message) from None
        if validate_only or values == self._dynamic.get(broker, {}):
            return
        await self._store.submit([put_broker_configs(broker, changes), CARRY_OVER])
        # What others have changed meanwhile stays.
        latest = {name: dict(held) for name, held in self._dynamic.items()}
        held = latest.setdefault(broker, {})
        held.update({name: value for name, value in changes.items() if value is not None})
        for name in [name for name, value in changes.items() if value is None]:
            held.pop(name, None)
        self._take(latest)

    def _check_broker(self, broker: str) -> None:
        config = self._config
        known = [str(config.broker_id), *(str(peer.broker_id) for peer in config.peers)]
        if broker == CLUSTER or broker in known:
            return
        if not (broker.isascii() and broker.removeprefix("-").isdigit()):
            why = f"Node id must be an integer, but it is: {broker[:100]}"
        else:
            why = f"Unexpected broker id, expected {' or '.join(known)}, but received {broker[:100]}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, why)

    def _take(self, dynamic: dict[str, dict[str, str]]) -> None:
        self._dynamic = {broker: values for broker, values in dynamic.items() if values}
        self.topic_defaults = self._defaults(self._dynamic)
        self._logs.producer_id_expiration_ms = self.number(PRODUCER_ID_EXPIRATION)
        self._apply()

    def _apply(self) -> None:
        """Give the defaults to the topics that do not set their own."""
        changed: list[TopicInfo] = []
        # Most topics set nothing or the same; they share what was parsed once.
        parsed: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        for info in self._topics.all():
            key = tuple(sorted(info.overrides.items()))
            config = parsed.get(key)
            if config is None:
                config = parsed[key] = self.topic_config(info.name, info.overrides)
            if config != info.config:
                changed.append(replace(info, config=config))
        if changed:
            self._logs.update_configs({info.name: info.config for info in changed})
        self._topics.replace(changed)

    def _defaults(self, dynamic: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """The defaults of topics, under the names of topic settings."""
        own = str(self._config.broker_id)
        merged = {**self._static, **dynamic.get(CLUSTER, {}), **dynamic.get(own, {})}
        names = ((one.name, one.broker or one.name) for one in DEFINITIONS.values())
        return {name: merged[broker] for name, broker in names if broker in merged}


def _static_values(config: Config) -> dict[str, str]:
    """What this process was started with that is not the default, of the settings that can be changed."""
    values = {}
    for name, given, default in (
        ("log.cleaner.min.cleanable.ratio", config.compaction_min_dirty_ratio, _DEFAULTS.compaction_min_dirty_ratio),
        ("log.index.interval.bytes", config.index_interval_bytes, _DEFAULTS.index_interval_bytes),
        ("log.segment.delete.delay.ms", config.file_delete_delay_ms, _DEFAULTS.file_delete_delay_ms),
        (PRODUCER_ID_EXPIRATION, config.producer_id_expiration_ms, _DEFAULTS.producer_id_expiration_ms),
    ):  # fmt: skip
        if given != default:
            values[name] = str(given)
    for name, text in config.topic_defaults.items():
        values[DEFINITIONS[name].broker or name] = text
    return values


def _protocol(endpoint: Endpoint) -> str:
    """Return Kafka's name of what a listener speaks."""
    return ("SASL_" if endpoint.authentication else "") + ("SSL" if endpoint.tls else "PLAINTEXT")


def _address(endpoint: Endpoint) -> str:
    return str(replace(endpoint, options=())).partition("://")[2]
