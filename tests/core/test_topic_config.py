"""Topic settings: what is known is parsed and bounded, what is not known is refused."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.topic_config import DEFINITIONS, INT_MAX, TopicConfig, definition, parse_topic_config


def test_the_defaults_of_the_table_are_those_of_the_class() -> None:
    assert parse_topic_config({name: one.default for name, one in DEFINITIONS.items()}) == TopicConfig()
    assert parse_topic_config({}) == TopicConfig()


def test_a_topics_own_setting_wins_over_the_brokers() -> None:
    config = parse_topic_config({"retention.ms": "1"}, {"retention.ms": "2", "segment.ms": "3"})
    assert (config.retention_ms, config.segment_ms) == (1, 3)


@pytest.mark.parametrize(
    ("policy", "compacted", "deletes"),
    [("delete", False, True), ("compact", True, False), ("compact, delete", True, True)],
)
def test_a_cleanup_policy_is_a_list(policy: str, compacted: bool, deletes: bool) -> None:
    config = parse_topic_config({"cleanup.policy": policy})
    assert (config.compacted, config.deletes) == (compacted, deletes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", str(2**63)),
        ("segment.bytes", "13"),
        ("segment.bytes", str(INT_MAX + 1)),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,burn"),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "createtime"),
        ("min.insync.replicas", "0"),
        ("segment.index.bytes", "1"),
        ("", "1"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(BrokerError) as refused:
        parse_topic_config({name: text})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert name in refused.value.message


@pytest.mark.parametrize("one", DEFINITIONS.values(), ids=DEFINITIONS)
def test_every_setting_takes_its_bounds(one: object) -> None:
    found = definition(getattr(one, "name", ""))
    for bound in (found.minimum, found.maximum):
        if bound is not None:
            assert found.parse(f" {bound} ") == bound
    for choice in found.choices:
        assert found.parse(choice) in (choice, frozenset({choice}))
    assert found.doc.endswith(".")
