"""Jobs from topics to topics and to tables: dedup, aggregate, snapshot, usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.records.record import NewRecord
from pipeline.jobs.registry import SettingsError, read_settings
from pipeline.jobs.stream import JobError
from pipeline.lake.iceberg import open_catalog
from pipeline.wire.cluster import ClientSettings, Cluster
from pipeline.wire.groups import commit
from tests.pipeline.jobs.running import Runner
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"
)
START = 1_700_000_000_000


def test_dedup_lets_the_first_of_each_id_through_over_restarts(jobs: Runner, topics: Topics) -> None:
    topic, clean = topics.create("dirty", 2, retention_ms="-1"), topics.create("clean", 1, retention_ms="-1")

    def order(number: int, note: str) -> NewRecord:
        value = json.dumps({"id": number, "note": note}).encode()
        return NewRecord(key=b"k", value=value, headers=(("n", b"1"),), timestamp=START + number)

    topics.write(
        topic, [order(1, "a"), order(2, "a"), order(1, "b"), NewRecord(value=b"no id", timestamp=START)]
    )
    job = {"topics": [topic], "to": clean, "by": "$.id", "horizon": "1 hour"}
    jobs.run("dedup", **job)
    topics.write(
        topic, [order(2, "c"), order(3, "a"), NewRecord(value=b"no id", timestamp=START)], partition=1
    )
    jobs.run("dedup", **job)
    found = topics.records(clean)
    values = sorted(one.value or b"" for one in found)
    assert values == sorted([*[order(n, "a").value or b"" for n in (1, 2, 3)], b"no id", b"no id"])
    assert {dict(one.headers).get("n") for one in found if one.key} == {b"1"}


def test_aggregates_of_closed_windows_are_emitted_once(jobs: Runner, topics: Topics) -> None:
    topic, sums = topics.create("sales", 1, retention_ms="-1"), topics.create("sums", 1, retention_ms="-1")
    minute = 60_000
    rows = [
        ("Oslo", 1.5, 0),
        ("Oslo", 2.0, 10_000),
        ("Rome", 4.0, 20_000),
        ("Oslo", 8.0, minute),
        ("Oslo", 0.0, 9 * minute),
    ]
    begin = START - START % minute
    topics.write(
        topic,
        [
            NewRecord(value=json.dumps({"city": c, "total": t}).encode(), timestamp=begin + at)
            for c, t, at in rows
        ],
    )
    job = {
        "topics": [topic], "to": sums, "schema": "city STRING, total DOUBLE", "by": ["city"],
        "compute": ["sum(total) AS total", "count(*) AS sales"], "window": "1 minute", "late": "1 minute",
    }  # fmt: skip
    jobs.run("aggregate", **job)
    jobs.run("aggregate", **job)
    found = [(json.loads(one.key or b""), json.loads(one.value or b"")) for one in topics.records(sums)]
    assert sorted((key["city"], value["total"], value["sales"]) for key, value in found) == [
        ("Oslo", 3.5, 2), ("Oslo", 8.0, 1), ("Rome", 4.0, 1),
    ]  # fmt: skip
    assert found[0][1]["window_start"] == "2023-11-14T22:13:00.000Z"
    topics.write(topic, [NewRecord(value=b"[]", timestamp=begin)])
    with pytest.raises(JobError, match="sales-0 at offset 5: the value is not a JSON object"):
        jobs.run("aggregate", **job)


def test_windows_by_a_field_leave_out_no_record_silently(jobs: Runner, topics: Topics) -> None:
    topic, counts = topics.create("timed", 1), topics.create("timed-counts", 1)
    topics.write(topic, [f'{{"at": "2025-01-31T12:0{minute}:00Z"}}' for minute in (0, 0, 9)])
    job = {
        "topics": [topic], "to": counts, "schema": "at TIMESTAMP, id BIGINT", "time_field": "at",
        "compute": ["count(*) AS n"],
    }  # fmt: skip
    jobs.run("aggregate", **job)
    assert [json.loads(one.value or b"")["n"] for one in topics.records(counts)] == [2]
    topics.write(topic, ['{"id": 1}'])
    with pytest.raises(JobError, match="timed-0 at offset 3: field at is null, and windows go by it"):
        jobs.run("aggregate", **job)
    with pytest.raises(JobError, match="time_field id is BIGINT in the schema; it must be TIMESTAMP"):
        jobs.run("aggregate", **{**job, "time_field": "id"})


def _values(kind: str, path: str) -> dict[bytes, bytes]:
    if kind == "parquet":
        table = pq.read_table(path)
    elif kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(path).to_pyarrow_table()
    else:
        table = open_catalog(Path(path)).load_table("lake.latest").scan().to_arrow()
    found = table.to_pylist()
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"]: row["value"] for row in found}


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_snapshot_holds_the_latest_value_of_each_key(kind: str, jobs: Runner, topics: Topics) -> None:
    topic = topics.create(f"users-{kind}", 1)

    def put(key: str, value: str | None) -> None:
        topics.write(topic, [NewRecord(key=key.encode(), value=None if value is None else value.encode())])

    for key, value in [("ann", "1"), ("bob", "1"), ("ann", "2"), ("cyd", "1")]:
        put(key, value)
    table = {"table": "lake.latest"} if kind == "iceberg" else {}
    job: dict[str, Any] = {"topics": [topic], "to": jobs.path("t"), "format": kind, **table}
    assert jobs.run("snapshot", **job).rows == 3
    assert _values(kind, jobs.path("t")) == {b"ann": b"2", b"bob": b"1", b"cyd": b"1"}
    put("cyd", None)
    put("bob", "3")
    assert jobs.run("snapshot", **job).rows == 2
    assert _values(kind, jobs.path("t")) == {b"ann": b"2", b"bob": b"3"}


def test_usage_counts_bytes_lag_and_skew(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("measured", 2)
    topics.write(topic, [NewRecord(key=b"hot", value=b"x" * 97) for _ in range(30)])
    topics.write(topic, [NewRecord(key=b"k%d" % n, value=b"x" * 98) for n in range(10)], partition=1)
    host, port = topics.broker.kafka.split(":")
    with Cluster(ClientSettings(((host, int(port)),))) as cluster:
        commit(cluster, "readers", {(topic, 0): 25, (topic, 1): 10})
    done = jobs.run("usage", topics=[topic], keys=True)
    zero, one = done.table
    assert (zero["records"], zero["bytes"], zero["mean_bytes"], zero["skew"]) == (30, 3000, 100.0, 1.5)
    assert (one["records"], one["bytes"], one["keys"], one["top_key_share"]) == (10, 1000, 10, 0.1)
    assert (zero["keys"], zero["top_key_share"]) == (1, 1.0)
    assert (zero["lag"], one["lag"]) == ("readers: 5", "readers: 0")


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("dedup", {"topics": ["a"], "to": "a"}, "one of the topics"),
        ("dedup", {"topics": ["a"], "to": "b", "by": "id"}, "JSON path"),
        ("dedup", {"topics": ["a"], "to": "b", "horizon": "long"}, "duration"),
        ("aggregate", {"topics": ["a"], "to": "b", "schema": "x INT", "compute": []}, "compute"),
        ("aggregate", {"topics": ["a"], "to": "b", "compute": ["count(*)"]}, "schema"),
        ("snapshot", {"topics": [], "to": "b"}, "topics"),
        ("snapshot", {"topics": ["a"], "to": "b", "format": "iceberg"}, "namespace.name"),
        ("dedup", {"pattern": "a.*", "to": "ab"}, "finds the topic ab too"),
        ("usage", {"topics": ["a"], "pattern": "b"}, "not both"),
        ("usage", {"pattern": "["}, "no regular expression"),
        ("usage", {"since": "yesterday"}, "it is a time"),
        ("replay", {"lake": "x", "topic": "t", "since": "2025-02-01", "until": "2025-01-01"}, "not before"),
        ("replay", {"lake": "x", "topic": "t", "rate": 0}, "rate"),
        ("verify", {"lake": "x", "format": "parquet", "table": "a.b"}, "namespace.name"),
    ],
)
def test_settings_that_make_no_sense_are_refused(kind: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings(kind, values)


def test_a_field_that_is_not_there_and_an_aggregate_that_is_none(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("odd", 1)
    base = {"topics": [topic], "to": "out", "schema": "a INT"}
    with pytest.raises(JobError, match="no field b; it has a"):
        jobs.run("aggregate", **base, compute=["count(*) AS n"], by=["b"])
    with pytest.raises(JobError, match="compute"):
        jobs.run("aggregate", **base, compute=["sum("])
    with pytest.raises(JobError, match="compute"):
        jobs.run("aggregate", **base, compute=["sum(nothing) AS n"])
