"""Export: each record once in every kind of table; what cannot be decoded stops, is left out, or is put aside."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from core.records.record import NewRecord
from pipeline.jobs import direct
from pipeline.jobs.registry import SettingsError, read_settings
from pipeline.jobs.stream import JobError, read_stream
from pipeline.lake.iceberg import open_catalog
from tests.pipeline.jobs.running import Runner, naive, once
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"
)

GOOD = [
    b'{"id": 1, "total": 2.5, "who": {"city": "Oslo"}}',
    b'{"id": 2, "total": null, "color": "red"}',
    b"{}",
]
BAD = {
    b"\xff\xfe": "the value is not UTF-8",
    b"[1, 2]": "the value is not a JSON object",
    b'{"id": 1,': "the value is not JSON",
    b'{"id": 1} and more': "the value continues after its JSON object",
    b'{"id": "one", "total": 3}': "field id: one is no BIGINT",
}
SCHEMA = "id BIGINT, total DOUBLE, who STRUCT<city: STRING>"


def _raw_rows(kind: str, path: str) -> list[dict[str, Any]]:
    if kind == "parquet":
        table = pq.read_table(path)
    elif kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(path).to_pyarrow_table()
    else:
        table = open_catalog(Path(path)).load_table("lake.raw").scan().to_arrow()
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_raw_records_are_there_once_byte_by_byte_over_two_runs(
    kind: str, jobs: Runner, topics: Topics
) -> None:
    topic = topics.create(f"raw-{kind}", 2, retention_ms="-1")
    first = NewRecord(
        key=b"k", value=b"\x00\xff", headers=(("trace", b"7f"), ("empty", None)), timestamp=1_700_000_000_123
    )
    topics.write(topic, [first, NewRecord(value=None, timestamp=1_700_086_400_000)])
    topics.write(topic, ["one"], partition=1)
    table = {"table": "lake.raw"} if kind == "iceberg" else {}
    job: dict[str, Any] = {
        "topics": [topic],
        "to": jobs.path("t"),
        "format": kind,
        "partition_by": ["day"],
        **table,
    }
    assert jobs.run("export", **job).rows == 3
    topics.write(topic, ["two"], partition=1)
    again = jobs.run("export", **job)
    assert (again.rows, again.skipped) == (1, 0)
    rows = _raw_rows(kind, jobs.path("t"))
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        (0, 0, b"\x00\xff"), (0, 1, None), (1, 0, b"one"), (1, 1, b"two"),
    ]  # fmt: skip
    assert (rows[0]["key"], rows[0]["headers"]) == (
        b"k",
        [{"key": "trace", "value": b"7f"}, {"key": "empty", "value": None}],
    )
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000.123
    if kind == "parquet":
        assert {path.parent.name for path in Path(jobs.path("t")).rglob("*.parquet")} >= {
            "day=2023-11-14", "day=2023-11-15",
        }  # fmt: skip


@pytest.mark.parametrize("told", [{}, {"mode": "json", "schema": "id BIGINT"}])
def test_a_time_of_a_far_year_is_in_the_table_under_no_day(
    told: dict[str, str], jobs: Runner, topics: Topics
) -> None:
    # A producer that sends microseconds where milliseconds belong, to a broker that lets it.
    topic = topics.create(f"far-{len(told)}", 1, message_timestamp_after_max_ms=str(2**63 - 1))
    times = (1_700_000_000_000, 1_700_000_000_000_000)
    topics.write(topic, [NewRecord(value=b'{"id": 1}', timestamp=one) for one in times])
    job = {"topics": [topic], "to": jobs.path("t"), "partition_by": ["day", "hour"], **told}
    assert jobs.run("export", **job).rows == 2
    files = sorted(
        str(path.parent.relative_to(jobs.path("t"))) for path in Path(jobs.path("t")).rglob("*.parquet")
    )
    assert files == [
        "day=2023-11-14/hour=22", "day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__",
    ]  # fmt: skip


def test_files_stand_on_topic_partition_and_offset(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("narrow", 1)
    topics.fill(topic, 3)
    job = {"topics": [topic], "to": jobs.path("t")}
    with pytest.raises(JobError, match="columns lacks topic, offset"):
        jobs.run("export", **job, source={"columns": "value,partition"})
    with pytest.raises(JobError, match="columns lacks timestamp"):
        jobs.run("export", **job, source={"columns": "value,topic,partition,offset"}, partition_by=["hour"])
    narrow = {"columns": "offset,topic,value,partition"}
    assert jobs.run("export", **job, source=narrow).rows == 3
    assert pq.read_table(jobs.path("t")).column_names == ["offset", "topic", "value", "partition"]


def test_the_source_of_files_is_for_the_job_alone(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("nobody", 1)
    topics.fill(topic, 3)
    settings: Any = read_settings("export", {"topics": [topic], "to": "x", "bootstrap": topics.broker.kafka})
    query = direct.read(jobs.spark, settings).writeStream.format("noop").trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="written by the export job alone"):
        query.option("checkpointLocation", jobs.path("c")).start().awaitTermination()


def _lose_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between the sink's commit and Spark's note of it."""
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda p: int(p.name),
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_batch_whose_commit_entry_is_lost_is_skipped(kind: str, jobs: Runner, topics: Topics) -> None:
    topic = topics.create(f"replayed-{kind}", 1)
    topics.fill(topic, 300)
    table = {"table": "lake.raw"} if kind == "iceberg" else {}
    job: dict[str, Any] = {
        "topics": [topic], "to": jobs.path("t"), "format": kind, "name": "x", "max_offsets_per_trigger": 100, **table,
    }  # fmt: skip
    assert jobs.run("export", **job).rows == 300
    _lose_last_commit(jobs.home / "state" / "checkpoints" / "x")
    again = jobs.run("export", **job)
    assert (again.rows, again.skipped) == (0, 1)
    assert [row["offset"] for row in _raw_rows(kind, jobs.path("t"))] == list(range(300))


def test_spark_s_own_parquet_sink_duplicates_in_the_same_case(jobs: Runner, topics: Topics) -> None:
    """The control: if this one did not duplicate, the test above could not fail."""
    topic = topics.create("control", 1)
    topics.fill(topic, 100)
    settings: Any = read_settings("export", {
        "topics": [topic], "to": "unused", "bootstrap": topics.broker.kafka, "once": True,
    })  # fmt: skip
    target, checkpoint = jobs.home / "spark", jobs.home / "checkpoint"

    def run() -> None:
        writer = read_stream(jobs.spark, settings).writeStream.format("parquet").trigger(availableNow=True)
        writer.option("path", str(target)).option(
            "checkpointLocation", str(checkpoint)
        ).start().awaitTermination()

    run()
    assert naive(target) == once(topic, {0: 100})
    _lose_last_commit(checkpoint)
    shutil.rmtree(target / "_spark_metadata")
    run()
    assert sum(naive(target).values()) == 200


def test_typed_columns_and_what_does_not_fit_is_put_aside_with_the_reason(
    jobs: Runner, topics: Topics
) -> None:
    topic, letters = topics.create("typed", 1), topics.create("typed-bad", 1)
    bad = [NewRecord(key=b"k", value=value, headers=(("h", b"1"),)) for value in BAD]
    topics.write(
        topic, [*[NewRecord(value=value) for value in GOOD], *bad, NewRecord(key=b"gone", value=None)]
    )
    job = {
        "topics": [topic], "to": jobs.path("t"), "mode": "json", "schema": SCHEMA, "on_error": "quarantine",
        "dead_letter": letters, "unknown_fields": "keep",
    }  # fmt: skip
    done = jobs.run("export", **job)
    assert (done.rows, done.rejected) == (4, len(BAD))
    rows = sorted(pq.read_table(jobs.path("t")).to_pylist(), key=lambda row: row["_offset"])
    assert [(row["_offset"], row["id"], row["total"], row["who"]) for row in rows] == [
        (0, 1, 2.5, {"city": "Oslo"}), (1, 2, None, None), (2, None, None, None), (3 + len(BAD), None, None, None),
    ]  # fmt: skip
    assert [row["_value"] for row in rows] == [None, GOOD[1].decode(), None, None]
    aside = topics.records(letters)
    assert {one.value: dict(one.headers)["sluice.error"].decode() for one in aside} == BAD
    assert {(one.key, dict(one.headers)["h"], dict(one.headers)["sluice.offset"]) for one in aside} == {
        (b"k", b"1", b"%d" % (3 + number)) for number in range(len(BAD))
    }
    verified = jobs.run("verify", lake=jobs.path("t"), dead_letter=letters, complete=True)
    assert verified.problems == []
    assert (verified.table[0]["rows"], verified.table[0]["aside"]) == (4, len(BAD))


@pytest.mark.parametrize("bad", [list(BAD)[1], list(BAD)[-1]])
def test_suspend_names_topic_partition_and_offset_and_loses_nothing(
    bad: bytes, jobs: Runner, topics: Topics
) -> None:
    topic = topics.create(f"suspend-{list(BAD).index(bad)}", 1)
    topics.write(topic, [NewRecord(value=GOOD[0]), NewRecord(value=bad), NewRecord(value=GOOD[1])])
    job = {"topics": [topic], "to": jobs.path("t"), "mode": "json", "schema": SCHEMA, "name": "s"}
    with pytest.raises(
        JobError, match=rf"{topic}-0 at offset 1: {BAD[bad]}.*nothing of the batch was written"
    ):
        jobs.run("export", **job)
    assert not list(Path(jobs.path("t")).rglob("*.parquet"))
    if bad == b"[1, 2]":
        # The same job continues where it ended, once it is told what to do.
        assert jobs.run("export", **{**job, "on_error": "skip"}).rows == 2
        assert [key[2] for key in sorted(naive(jobs.path("t"), "_"))] == [0, 2]


def test_a_schema_that_changes_in_mid_stream_loses_nothing(jobs: Runner, topics: Topics) -> None:
    topic, letters = topics.create("evolves", 1), topics.create("evolves-bad", 1)
    job: dict[str, Any] = {
        "topics": [topic], "to": jobs.path("t"), "mode": "json", "schema": "id BIGINT", "name": "e",
        "unknown_fields": "keep",
    }  # fmt: skip
    topics.write(topic, ['{"id": 1}'])
    assert jobs.run("export", **job).rows == 1
    # The producers add a field, then change a type.
    topics.write(topic, ['{"id": 2, "note": "new"}'])
    assert jobs.run("export", **job).rows == 1
    topics.write(topic, ['{"id": 3}', '{"id": "four"}'])
    with pytest.raises(JobError, match="evolves-0 at offset 3: field id: four is no BIGINT"):
        jobs.run("export", **job)
    # Another schema is another table: it is refused, and the job can still continue with the old one.
    with pytest.raises(JobError, match=r"the column id: int64 in the table, string in this job"):
        jobs.run("export", **{**job, "schema": "id STRING"})
    with pytest.raises(JobError, match="this job lacks the column _value"):
        jobs.run("export", **{**job, "unknown_fields": "ignore"})
    assert jobs.run("export", **job, on_error="quarantine", dead_letter=letters).rows == 1
    rows = sorted(pq.read_table(jobs.path("t")).to_pylist(), key=lambda row: row["_offset"])
    assert [(row["_offset"], row["id"], row["_value"]) for row in rows] == [
        (0, 1, None), (1, 2, '{"id": 2, "note": "new"}'), (2, 3, None),
    ]  # fmt: skip
    assert [one.value for one in topics.records(letters)] == [b'{"id": "four"}']


def test_a_field_that_the_schema_lacks_can_be_refused(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("stranger", 1)
    topics.write(topic, [NewRecord(value=value) for value in GOOD])
    job = {
        "topics": [topic],
        "to": jobs.path("t"),
        "mode": "json",
        "schema": SCHEMA,
        "unknown_fields": "reject",
    }
    with pytest.raises(JobError, match="stranger-0 at offset 1: the schema lacks the field color"):
        jobs.run("export", **job)


def test_a_variant_keeps_whatever_json_there_is(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("variant", 1)
    topics.write(topic, ['{"a": [1, {"b": null}]}', "7", "nonsense"])
    done = jobs.run("export", topics=[topic], to=jobs.path("t"), mode="variant", on_error="skip")
    assert (done.rows, done.rejected) == (2, 1)
    rows = jobs.spark.read.schema("value VARIANT, _offset BIGINT").parquet(jobs.path("t")).orderBy("_offset")
    assert [row[0] for row in rows.selectExpr("to_json(value)").collect()] == ['{"a":[1,{"b":null}]}', "7"]


def test_other_offsets_for_the_same_table_are_refused(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("twice", 1)
    topics.fill(topic, 10)
    jobs.run("export", topics=[topic], to=jobs.path("t"), name="one")
    with pytest.raises(JobError, match="already holds twice-0 from offset 0 to 9"):
        jobs.run("export", topics=[topic], to=jobs.path("t"), name="two")
    assert naive(jobs.path("t")) == once(topic, {0: 10})


def test_partitioned_by_a_field_with_odd_characters(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("cities", 1)
    cities = ["Oslo", "São Paulo", "a/b=c %20", None]
    values = [f'{{"city": {"null" if city is None else chr(34) + city + chr(34)}}}' for city in cities]
    topics.write(topic, values)
    for kind in ("parquet", "delta"):
        job = {
            "topics": [topic],
            "mode": "json",
            "schema": "city STRING",
            "partition_by": ["city"],
            "format": kind,
        }
        jobs.run("export", **job, to=jobs.path(kind))
    from deltalake import DeltaTable

    for table in (pq.read_table(jobs.path("parquet")), DeltaTable(jobs.path("delta")).to_pyarrow_table()):
        found = {row["_offset"]: row["city"] for row in table.to_pylist()}
        assert found == dict(enumerate(cities))
    for kind in ("parquet", "delta"):
        verified = jobs.run("verify", lake=jobs.path(kind), format=kind, complete=True)
        assert (verified.rows, verified.problems) == (len(cities), [])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"topics": []}, "give topics or a pattern"),
        ({"topics": ["a"], "pattern": "b"}, "not both"),
        ({"mode": "json"}, "needs a schema"),
        ({"schema": "id INT"}, "needs a schema"),
        ({"format": "iceberg"}, "namespace.name"),
        ({"on_error": "skip"}, "mode raw decodes nothing"),
        ({"mode": "json", "schema": "a INT", "on_error": "quarantine"}, "dead_letter"),
        (
            {"mode": "json", "schema": "a INT", "on_error": "quarantine", "dead_letter": "t"},
            "one of the topics",
        ),
        ({"mode": "variant", "format": "delta"}, "parquet"),
        ({"once": True, "interval": "1 minute"}, "not both"),
        ({"topics": [], "pattern": "("}, "no regular expression"),
        (
            {
                "topics": [],
                "pattern": "t.*",
                "mode": "json",
                "schema": "a INT",
                "on_error": "quarantine",
                "dead_letter": "t-bad",
            },
            "finds the topic t-bad too",
        ),
        ({"interval": "soon"}, "duration"),
        ({"starting": "{"}, "starting"),
        ({"bootstrap": "nowhere"}, "host:port"),
        ({"to": "s3://bucket/x"}, "directory"),
        ({"topic": "a"}, "unknown field `topic`"),
        ({"max_offsets_per_trigger": 0}, "max_offsets_per_trigger"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings("export", {"topics": ["t"], "to": "x", **values})


def test_a_schema_that_cannot_be_read_and_a_column_that_is_not_there(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("wrong", 1)
    topics.write(topic, ["{}"])
    with pytest.raises(JobError, match="schema"):
        jobs.run("export", topics=[topic], to=jobs.path("t"), mode="json", schema="id BIGNUM")
    with pytest.raises(JobError, match="partition_by names city"):
        jobs.run("export", topics=[topic], to=jobs.path("t"), partition_by=["city"])
