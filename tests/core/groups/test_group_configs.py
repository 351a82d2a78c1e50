"""Settings of single groups: values in force, bounds in Kafka's words, kept over a restart."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.groups.group_configs import GROUP_DEFINITIONS, GroupSettings, duration_ms

HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
RESET = "share.auto.offset.reset"


def test_each_setting_has_a_field() -> None:
    assert {one.attribute for one in GROUP_DEFINITIONS.values()} == {
        one.name for one in fields(GroupSettings)
    }


async def test_a_group_has_the_settings_of_the_broker_until_it_sets_its_own(broker: Broker) -> None:
    configs = broker.group_configs
    assert configs.of("g") == GroupSettings()
    seen: list[str] = []
    forget = configs.watch(seen.append)
    await configs.alter("g", {HEARTBEAT: "6000", "share.renew.acknowledge.enable": "FALSE"})
    assert configs.of("g").consumer_heartbeat_interval_ms == 6000
    assert not configs.of("g").share_renew_acknowledge_enable
    assert (configs.of("other"), configs.groups()) == (GroupSettings(), ["g"])
    await configs.alter("g", {HEARTBEAT: None})
    assert configs.own("g") == {"share.renew.acknowledge.enable": "FALSE"}
    await configs.alter("g", {"share.renew.acknowledge.enable": None})
    assert (configs.of("g"), configs.groups(), seen) == (GroupSettings(), [], ["g"] * 3)
    forget()
    await configs.alter("g", {HEARTBEAT: "7000"})
    assert len(seen) == 3


async def test_settings_are_kept_over_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    first = Broker(Config(data_dir=tmp_path), clock)
    await first.open()
    await first.group_configs.alter("g", {HEARTBEAT: "6000", SESSION: "50000"})
    await first.group_configs.alter("g", {SESSION: None})
    await first.group_configs.alter("h", {RESET: "by_duration:PT1H"})
    await first.close()
    second = Broker(Config(data_dir=tmp_path), clock)
    await second.open()
    assert second.group_configs.own("g") == {HEARTBEAT: "6000"}
    assert second.group_configs.of("h").share_auto_offset_reset == "by_duration:PT1H"
    await second.close()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (HEARTBEAT, "4999", "must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "15001", "must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (HEARTBEAT, "0", "Value must be at least 1"),
        (HEARTBEAT, "x", "Not a number of type INT"),
        (SESSION, "44999", "must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", "must be less than or equal to"),
        ("consumer.assignment.interval.ms", "15001", "must be less than or equal to"),
        ("share.heartbeat.interval.ms", "4999", "must be greater than or equal to"),
        ("share.record.lock.duration.ms", "14999", "must be greater than or equal to group.share.min.record"),
        ("share.delivery.count.limit", "1", "Value must be at least 2"),
        ("share.delivery.count.limit", "11", "must be less than or equal to group.share.max.delivery.count"),
        ("share.partition.max.record.locks", "99", "Value must be at least 100"),
        ("share.partition.max.record.locks", "4001", "must be less than or equal to"),
        ("share.isolation.level", "serializable", "String must be one of"),
        ("share.renew.acknowledge.enable", "yes", "either true or false"),
        (RESET, "sometimes", "must be earliest, latest or by_duration"),
        (RESET, "by_duration:PT-1H", "must be earliest"),
        (RESET, "by_duration:P", "must be earliest"),
        ("errors.deadletterqueue.topic.name", "a/b", "topic name"),
        ("streams.session.timeout.ms", "1", "Unknown group config name: streams.session.timeout.ms"),
    ],
)
async def test_a_value_out_of_bounds_is_refused_and_nothing_changes(
    broker: Broker, name: str, value: str, why: str
) -> None:
    with pytest.raises(BrokerError) as refused:
        await broker.group_configs.alter("g", {"share.isolation.level": "read_committed", name: value})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert why in refused.value.message
    assert broker.group_configs.groups() == []


@pytest.mark.settings(group_consumer_min_session_timeout_ms=1_000)
async def test_a_session_must_be_longer_than_the_interval_of_heartbeats(broker: Broker) -> None:
    await broker.group_configs.alter("g", {SESSION: "10000"})
    with pytest.raises(BrokerError, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        await broker.group_configs.alter("g", {HEARTBEAT: "10000"})


@pytest.mark.settings(max_groups=2)
async def test_the_groups_with_settings_are_limited(broker: Broker) -> None:
    for group in ("a", "b"):
        await broker.group_configs.alter(group, {HEARTBEAT: "6000"})
    with pytest.raises(BrokerError) as refused:
        await broker.group_configs.alter("c", {HEARTBEAT: "6000"})
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await broker.group_configs.alter("a", {HEARTBEAT: "7000"})
    await broker.group_configs.alter("a", {HEARTBEAT: None})
    await broker.group_configs.alter("c", {HEARTBEAT: "6000"})


async def test_validate_only_stores_nothing(broker: Broker) -> None:
    await broker.group_configs.alter("g", {HEARTBEAT: "6000"}, validate_only=True)
    assert broker.group_configs.groups() == []


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_000),
        ("by_duration:P2D", 172_800_000),
        ("BY_DURATION:pt5s", 5_000),
        ("latest", None),
    ],
)
def test_durations_are_those_of_java(text: str, milliseconds: int | None) -> None:
    assert GROUP_DEFINITIONS[RESET].parse(text) == text
    assert duration_ms(text) == milliseconds
