"""What a job would read: of topics from their start, from a time, from a checkpoint; and which of it is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.records.record import NewRecord
from pipeline.jobs.plan import Range, client, cluster_options, lost, plan
from pipeline.jobs.registry import SettingsError, read_settings
from pipeline.wire.cluster import UnknownTopicError
from pipeline.wire.security import Login, Security, Tls
from tests.pipeline.topics import Topics

NOON = 1_738_324_800_000  # 2025-01-31T12:00Z


def _plan(made: Topics, kind: str, home: Path, **values: Any) -> list[tuple[str, int, int, int]]:
    job = read_settings(kind, {"bootstrap": made.broker.kafka, "state": str(home), **values})
    return [(one.topic, one.partition, one.start, one.end) for one in plan(job)]


def test_a_snapshot_reads_its_topics_whole_and_usage_from_a_time_on(topics: Topics, tmp_path: Path) -> None:
    name = topics.create("whole", 2)
    topics.write(name, [NewRecord(value=b"v", timestamp=NOON + n * 1000) for n in range(10)])
    topics.truncate(name, 3)
    whole = [(name, 0, 3, 10), (name, 1, 0, 0)]
    assert _plan(topics, "snapshot", tmp_path, topics=[name], to="t") == whole
    assert _plan(topics, "usage", tmp_path, pattern="wh.*") == whole
    for since, first in (("2025-01-31T11:00Z", 3), ("2025-01-31T12:00:05Z", 5), ("2026-01-01T00:00Z", 10)):
        found = _plan(topics, "usage", tmp_path, topics=[name], since=since)
        assert found == [(name, 0, first, 10), (name, 1, 0, 0)], since


def test_a_stream_begins_where_it_is_told_and_every_kind_names_a_topic_that_is_not_there(
    topics: Topics, tmp_path: Path
) -> None:
    name = topics.create("begins", 2)
    topics.fill(name, 10, partitions=2)
    told = {"latest": [10, 10], "earliest": [0, 0], '{"begins":{"0":4,"1":-1}}': [4, 10]}
    for starting, starts in told.items():
        found = _plan(topics, "dedup", tmp_path, topics=[name], to="elsewhere", starting=starting)
        assert [start for _, _, start, _ in found] == starts, starting
    for kind, more in (("dedup", {"to": "x"}), ("snapshot", {"to": "x"}), ("usage", {})):
        with pytest.raises(UnknownTopicError, match="missing"):
            _plan(topics, kind, tmp_path, topics=["missing"], **more)


def test_a_job_that_reads_a_table_reads_no_topic(tmp_path: Path) -> None:
    assert plan(read_settings("verify", {"lake": str(tmp_path), "bootstrap": "127.0.0.1:1"})) == []


def test_deleted_offsets_and_those_beyond_the_end_are_named() -> None:
    good, gone, behind = Range("t", 0, 5, 9, 5), Range("t", 1, 2, 9, 5), Range("t", 2, 12, 9, 5)
    assert (good.records, behind.records) == (4, 0)
    assert lost([good]) == []
    assert lost([gone, behind]) == [
        "t-1: offsets 2 to 4 are deleted; the topic begins at 5",
        "t-2: the job stands at 12, beyond the end 9",
    ]


def test_a_job_logs_in_with_its_settings_and_a_password_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login = {
        "bootstrap": "[::1]:9093",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "ssl_ca_location": "/ca.pem",
    }
    monkeypatch.setenv("SLUICE_SASL_PASSWORD", "canary")
    with client(read_settings("usage", login)) as cluster:
        assert cluster.settings.bootstrap == (("::1", 9093),)
        assert cluster.settings.security == Security(Tls("/ca.pem"), Login("PLAIN", "alice", "canary"))
    assert cluster_options(read_settings("usage", {**login, "sasl_password_file": "/password"})) == {
        "kafka.bootstrap.servers": "[::1]:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password.file": "/password",
        "kafka.ssl.ca.location": "/ca.pem",
    }
    assert cluster_options(read_settings("usage", {})) == {"kafka.bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sasl.password", "use sasl_password_file, or SLUICE_SASL_PASSWORD in the environment"),
        ("kafka.sasl.jaas.config", "use sasl_password_file"),
        ("kafka.ssl.ca.location", "use the setting ssl_ca_location of the job"),
    ],
)
def test_a_source_option_that_is_a_secret_or_a_setting_is_refused(name: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as raised:
        read_settings("export", {"topics": ["t"], "to": "x", "source": {name: "canary"}})
    assert "canary" not in str(raised.value)
