"""The limits of the broker: they cannot be changed in flight, and they fit each other."""

from __future__ import annotations

import dataclasses

import pytest

from core.config import Config, Endpoint


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().max_frame_bytes = 1  # type: ignore[misc]


def test_an_endpoint_is_written_as_a_url() -> None:
    assert str(Endpoint("kafka", "127.0.0.1", 9092)) == "kafka://127.0.0.1:9092"
    assert str(Endpoint("http", "::1", 8082)) == "http://[::1]:8082"


def test_listeners_are_on_loopback_by_default() -> None:
    assert {endpoint.host for endpoint in Config().listeners} == {"127.0.0.1"}
    assert {endpoint.scheme for endpoint in Config().listeners} == {"http", "kafka"}


# The majority of the brokers, for any number of them.
MAY_BE_0 = {"metadata_min_insync_replicas"}


def test_no_limit_is_missing() -> None:
    config = Config()
    numbers = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    numbers = {name: value for name, value in numbers.items() if type(value) in (int, float)}
    assert {name: value for name, value in numbers.items() if value <= 0 and name not in MAY_BE_0} == {}


def test_the_limits_fit_each_other() -> None:
    config = Config()
    assert config.max_frame_bytes <= config.max_inflight_bytes
    assert config.http_default_limit <= config.http_max_limit
    assert config.http_default_read_bytes <= config.http_max_read_bytes
    assert config.http_default_page_size <= config.http_max_page_size
    assert config.default_partitions <= config.max_partitions_per_topic <= config.max_partitions
    assert config.group_min_session_timeout_ms <= config.group_max_session_timeout_ms
    assert config.fetch_max_bytes < config.max_frame_bytes
