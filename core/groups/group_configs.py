"""Settings of single groups: the resource GROUP of Kafka (KIP-848, KIP-932, KIP-1240, KIP-1191).

A group that sets nothing itself has the settings of the broker. A group need not exist to have settings, and keeps
them when it is deleted, as in Kafka. They are in SQLite; in a cluster every broker has them.

    settings = broker.group_configs.of("orders")     # GroupSettings, the values in force
    settings.consumer_heartbeat_interval_ms

Names, types, bounds and the words of refusals are Kafka's (`GroupConfig`). The streams.* settings of KIP-1071 and
those of background threads for assignors do not exist here, and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.group_configs import put_group_configs
from core.metadata.store import CARRY_OVER, Store
from core.topic_config import Definition
from core.vocabulary.topic import ConfigEntry, Synonym, check_topic_name

_DEFAULTS = Config()
# ISO 8601, as Java's Duration reads it, without a sign.
_DURATION = re.compile(
    r"(?i:by_duration):P(?=\d|T\d)(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9})(?:\.\d{0,9})?S)?)?",
    re.IGNORECASE,
)
_RESET = re.compile(f"earliest|latest|{_DURATION.pattern}", re.IGNORECASE)
_MAX_ASSIGNMENT_INTERVAL_MS = 15_000
_MIN_DELIVERIES, _MAX_DELIVERIES = 2, 10
_MIN_LOCKS, _MAX_LOCKS = 100, 4_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group that are in force. Times are in milliseconds.

    `share_auto_offset_reset` is "earliest", "latest" or "by_duration:" with a duration of ISO 8601.
    """

    consumer_session_timeout_ms: int = _DEFAULTS.group_consumer_session_timeout_ms
    consumer_heartbeat_interval_ms: int = _DEFAULTS.group_consumer_heartbeat_interval_ms
    consumer_assignment_interval_ms: int = _DEFAULTS.group_consumer_assignment_interval_ms
    share_session_timeout_ms: int = _DEFAULTS.group_share_session_timeout_ms
    share_heartbeat_interval_ms: int = _DEFAULTS.group_share_heartbeat_interval_ms
    share_record_lock_duration_ms: int = _DEFAULTS.group_share_record_lock_duration_ms
    share_delivery_count_limit: int = _DEFAULTS.group_share_delivery_count_limit
    share_partition_max_record_locks: int = _DEFAULTS.group_share_partition_max_record_locks
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    share_renew_acknowledge_enable: bool = True
    errors_deadletterqueue_topic_name: str = ""
    errors_deadletterqueue_copy_record_enable: bool = False


# The least value that Kafka takes at all; `_Bounds` has those of the broker.
GROUP_DEFINITIONS: dict[str, Definition] = {
    one.name: one
    for one in (
        Definition(
            "consumer.session.timeout.ms", "INT", "",
            "After how long without a heartbeat a member of a consumer group is removed.",
            minimum=1, broker="group.consumer.session.timeout.ms",
        ),
        Definition(
            "consumer.heartbeat.interval.ms", "INT", "",
            "How often a member of a consumer group sends a heartbeat.",
            minimum=1, broker="group.consumer.heartbeat.interval.ms",
        ),
        Definition(
            "consumer.assignment.interval.ms", "INT", "",
            "The shortest time between two assignments of a consumer group.",
            minimum=0, broker="group.consumer.assignment.interval.ms",
        ),
        Definition(
            "share.session.timeout.ms", "INT", "",
            "After how long without a heartbeat a member of a share group is removed.",
            minimum=1, broker="group.share.session.timeout.ms",
        ),
        Definition(
            "share.heartbeat.interval.ms", "INT", "",
            "How often a member of a share group sends a heartbeat.",
            minimum=1, broker="group.share.heartbeat.interval.ms",
        ),
        Definition(
            "share.record.lock.duration.ms", "INT", "",
            "How long a record stays acquired by a share consumer.",
            minimum=1_000, broker="group.share.record.lock.duration.ms",
        ),
        Definition(
            "share.delivery.count.limit", "INT", "",
            "How often a record is delivered to a share group.",
            minimum=_MIN_DELIVERIES, broker="group.share.delivery.count.limit",
        ),
        Definition(
            "share.partition.max.record.locks", "INT", "",
            "Records of one partition that a share group has in flight at most.",
            minimum=_MIN_LOCKS, broker="group.share.partition.max.record.locks",
        ),
        Definition(
            "share.auto.offset.reset", "STRING", "",
            "Where a share group begins: earliest, latest, or by_duration:PnDTnHnMnS before now.",
            pattern=_RESET,
            wanted="must be earliest, latest or by_duration:<duration of ISO 8601>, such as by_duration:PT1H",
        ),
        Definition(
            "share.isolation.level", "STRING", "",
            "Whether a share group reads records of aborted transactions.",
            choices=("read_committed", "read_uncommitted"),
        ),
        Definition(
            "share.renew.acknowledge.enable", "BOOLEAN", "",
            "Whether share consumers may extend the lock of a record.",
        ),
        Definition(
            "errors.deadletterqueue.topic.name", "STRING", "",
            "The topic for records that a share group gives up (KIP-1191). Empty for none.",
        ),
        Definition(
            "errors.deadletterqueue.copy.record.enable", "BOOLEAN", "",
            "Whether key, value and headers of such a record are copied.",
        ),
    )
}  # fmt: skip
"""The settings that a group may have, by name. `Definition.default` is empty: the broker has the defaults."""


def duration_ms(reset: str) -> int | None:
    """Return the milliseconds of "by_duration:…", a value of share.auto.offset.reset; None for another value."""
    found = _DURATION.fullmatch(reset)
    if found is None:
        return None
    days, hours, minutes, seconds = (
        int(part or 0) for part in found.group("days", "hours", "minutes", "seconds")
    )
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


class GroupConfigs:
    """The settings of single groups, as `broker.group_configs`. Touched on the event loop only.

    `require` raises NOT_CONTROLLER on a broker that may not change them.
    """

    def __init__(self, config: Config, store: Store, require: Callable[[], None]) -> None:
        self._config = config
        self._store = store
        self._require = require
        self._defaults = _broker_settings(config)
        # By group: what it sets itself, as text, and the values in force.
        self._own: dict[str, dict[str, str]] = {}
        self._settings: dict[str, GroupSettings] = {}
        self._watchers: list[Callable[[str], None]] = []

    # --- reading -------------------------------------------------------------------------------------------

    def of(self, group_id: str) -> GroupSettings:
        """Return the settings in force of a group, whether it exists or not. Cheap: no copy, no parsing."""
        return self._settings.get(group_id, self._defaults)

    def own(self, group_id: str) -> dict[str, str]:
        """Return what a group sets itself."""
        return dict(self._own.get(group_id, {}))

    def groups(self) -> Sequence[str]:
        """Return the groups that set something themselves, sorted."""
        return sorted(self._own)

    def describe(self, group_id: str) -> list[ConfigEntry]:
        """Return all settings of a group, by name."""
        own, entries = self._own.get(group_id, {}), []
        for name, one in sorted(GROUP_DEFINITIONS.items()):
            default = _text(getattr(self._defaults, one.attribute))
            if name in own:
                found = Synonym(name, one.normal(own[name]), "group")
            elif default == _text(getattr(_KAFKA, one.attribute)):
                found = Synonym(name, default, "default")
            else:
                found = Synonym(one.broker, default, "static")
            # As Kafka 4.1, without the values of the levels below.
            entries.append(ConfigEntry(name, found.value, found.source, one.type, one.doc, (found,)))
        return entries

    def watch(self, watcher: Callable[[str], None]) -> Callable[[], None]:
        """Call `watcher(group_id)` after each change of a group's settings; the result ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    # --- changing ------------------------------------------------------------------------------------------

    def load(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Take what is stored, as (group id, name, value)."""
        own: dict[str, dict[str, str]] = {}
        for group_id, name, value in rows:
            # A later release may know more names; what it has stored stays in the store.
            if name in GROUP_DEFINITIONS:
                own.setdefault(group_id, {})[name] = value
        changed = [g for g in {*own, *self._own} if own.get(g) != self._own.get(g)]
        for group_id in changed:
            self._take(group_id, own.get(group_id, {}))

    async def alter(
        self, group_id: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings of a group; None removes a value. Durable when it returns.

        Raises INVALID_REQUEST for the empty group id, INVALID_CONFIG for an unknown name or a value out of bounds,
        POLICY_VIOLATION if too many groups have settings, NOT_CONTROLLER.
        """
        self._require()
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        before = self._own.get(group_id, {})
        after = _merged(before, changes)
        self._check(after)
        if after and not before and len(self._own) >= self._config.max_groups:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._config.max_groups} groups have settings of their own; remove those of others first.",
            )
        if validate_only or after == before:
            return
        await self._store.submit([put_group_configs(group_id, changes), CARRY_OVER])
        # What others have changed meanwhile stays.
        self._take(group_id, _merged(self._own.get(group_id, {}), changes))

    def _check(self, values: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG unless these are settings that a group may have, each and together."""
        for name, value in values.items():
            if name not in GROUP_DEFINITIONS:
                raise _invalid(name, f"Unknown group config name: {name[:200]}")
            GROUP_DEFINITIONS[name].parse(value)
        found = _settings(self._defaults, values)
        for name, low, high in _bounds(self._config):
            if name in values:
                _require_bounds(
                    GROUP_DEFINITIONS[name], getattr(found, GROUP_DEFINITIONS[name].attribute), low, high
                )
        for kind in ("consumer", "share"):
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            given = session in values or heartbeat in values
            if given and getattr(found, f"{kind}_session_timeout_ms") <= getattr(
                found, f"{kind}_heartbeat_interval_ms"
            ):
                raise _invalid(session, f"{session} must be greater than {heartbeat}")
        topic = found.errors_deadletterqueue_topic_name
        if topic:
            try:
                check_topic_name(topic)
            except BrokerError as error:
                raise _invalid("errors.deadletterqueue.topic.name", error.message) from None

    def _take(self, group_id: str, own: dict[str, str]) -> None:
        if own:
            self._own[group_id] = own
            self._settings[group_id] = _settings(self._defaults, own)
        else:
            self._own.pop(group_id, None)
            self._settings.pop(group_id, None)
        for watcher in list(self._watchers):
            watcher(group_id)


_KAFKA = GroupSettings()


def _broker_settings(config: Config) -> GroupSettings:
    """The settings of a group that sets nothing itself."""
    given = {
        one.name: getattr(config, f"group_{one.name}")
        for one in fields(GroupSettings)
        if hasattr(config, f"group_{one.name}")
    }
    return GroupSettings(**given)


def _settings(defaults: GroupSettings, own: Mapping[str, str]) -> GroupSettings:
    values: dict[str, Any] = {one.name: getattr(defaults, one.name) for one in fields(GroupSettings)}
    for name, text in own.items():
        one = GROUP_DEFINITIONS[name]
        values[one.attribute] = one.parse(text)
    return GroupSettings(**values)


def _bounds(config: Config) -> Sequence[tuple[str, int, int]]:
    return (
        (
            "consumer.heartbeat.interval.ms",
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
        (
            "consumer.session.timeout.ms",
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        ("consumer.assignment.interval.ms", 0, _MAX_ASSIGNMENT_INTERVAL_MS),
        (
            "share.heartbeat.interval.ms",
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_max_heartbeat_interval_ms,
        ),
        (
            "share.session.timeout.ms",
            config.group_share_min_session_timeout_ms,
            config.group_share_max_session_timeout_ms,
        ),
        (
            "share.record.lock.duration.ms",
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
        ("share.delivery.count.limit", _MIN_DELIVERIES, _MAX_DELIVERIES),
        ("share.partition.max.record.locks", _MIN_LOCKS, _MAX_LOCKS),
    )


def _require_bounds(one: Definition, value: int, low: int, high: int) -> None:
    kind, _, rest = one.name.partition(".")
    if value < low:
        raise _invalid(
            one.name, f"{one.name} must be greater than or equal to group.{kind}.min.{rest} ({low})"
        )
    if value > high:
        raise _invalid(one.name, f"{one.name} must be less than or equal to group.{kind}.max.{rest} ({high})")


def _merged(values: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**values, **{name: value for name, value in changes.items() if value is not None}}
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
    return merged


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _invalid(name: str, why: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_CONFIG, why, config=name)
