"""docs/reference/topic-settings.md: the settings of topics, and those of the broker under Kafka's names."""

from __future__ import annotations

from app.reference.markdown import table
from core.broker.broker_configs import DYNAMIC, FIXED
from core.config import Config
from core.topic_config import DEFINITIONS, STORED_ONLY, Definition

_TOPICS = """\
# Settings of topics, and of the broker in Kafka's words

Written by `sluice docs` from the code. [Configuration](../operations/configuration.md) says how to change them.

`sluice topics alter orders --config retention.ms=3600000` changes a setting of one topic while the broker runs, and
`--delete-config retention.ms` removes it. Over HTTP it is a [PATCH](../guides/http.md#topics) of the topic.
`sluice topics describe orders --all` shows each value and its source: `topic`, `broker` (`SLUICE_TOPIC_DEFAULTS`,
`topic_defaults` in the configuration file, or a setting of the broker) or `default`.

## Settings of topics
"Stored only" settings are checked, stored and described, and have no effect. "Older" settings were removed in
Kafka 4; clients of older releases still send them.
"""
_DYNAMIC = """
## Settings of the broker that can be changed at run time
`kafka-configs --entity-type brokers` changes them, for one broker or with `--entity-default` for all brokers.
"""
_FIXED = """
## Settings of the broker that need a restart
DescribeConfigs shows them as read-only, with the value of Sluice's own [setting](settings.md).
"""


def page() -> str:
    """Return the page."""
    topics = [
        (f"`{one.name}`", one.type, _shown(one), _bounds(one), one.doc + _notes(one))
        for one in DEFINITIONS.values()
    ]
    dynamic = [(f"`{one.name}`", one.type, _shown(one), one.doc) for one in DYNAMIC.values()]
    default = Config()
    fixed = [
        (f"`{one.name}`", one.type, "" if one.given else f"`{one.value(default)}`", one.doc) for one in FIXED
    ]
    return (
        _TOPICS
        + table(("setting", "type", "default", "values", "meaning"), topics)
        + _DYNAMIC
        + table(("setting", "type", "default", "meaning"), sorted(dynamic))
        + _FIXED
        + table(("setting", "type", "default", "meaning"), fixed)
    )


def _shown(one: Definition) -> str:
    return f"`{one.default}`" if one.default else "none"


def _bounds(one: Definition) -> str:
    if one.choices:
        return ", ".join(f"`{choice}`" for choice in one.choices)
    if one.minimum is None:
        return ""
    ends = f"from {one.minimum}" if one.maximum is None else f"{one.minimum} to {one.maximum}"
    return ends if one.alone is None else f"{ends}, or {one.alone}"


def _notes(one: Definition) -> str:
    notes = ["stored only"] if one.name in STORED_ONLY else []
    notes += ["older"] if one.older else []
    return f" ({', '.join(notes)})" if notes else ""
