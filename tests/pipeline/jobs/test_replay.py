"""Replay: what was exported comes back into a topic as it was, once, also after a replay that was cut short."""

from __future__ import annotations

import pytest

from core.records.record import NewRecord
from pipeline.jobs.stream import JobError
from tests.clients.driver import Message
from tests.pipeline.jobs.running import Runner
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
DAY = 86_400_000
START = 1_700_000_000_000
OURS = ("sluice.replay", "sluice.topic", "sluice.partition", "sluice.offset", "sluice.written")


def _content(message: Message) -> tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]:
    headers = [(name, value) for name, value in message.headers if name not in OURS]
    return message.key, message.value, message.timestamp, headers


def test_an_exported_topic_comes_back_as_it_was_and_a_second_run_adds_nothing(
    jobs: Runner, topics: Topics
) -> None:
    topic = topics.create("first", 2, retention_ms="-1")
    for partition in (0, 1):
        made = [
            NewRecord(
                key=b"k%d" % n if n % 2 else None,
                value=b"v%d" % n if n % 3 else None,
                headers=(("n", b"%d" % n), ("empty", None)),
                timestamp=START + n * DAY,
            )
            for n in range(6)
        ]
        topics.write(topic, made, partition=partition)
    jobs.run("export", topics=[topic], to=jobs.path("lake"))
    copy = topics.create("copy", 2, retention_ms="-1")
    job = {"lake": jobs.path("lake"), "topic": copy, "keep_partitions": True}
    # Cut short: only the first two days came through.
    early = jobs.run("replay", **job, name="r", until="2023-11-16T00:00Z")
    assert early.rows == 4
    rest = jobs.run("replay", **job, name="r")
    assert rest.rows == 8
    assert rest.table[0]["written_before"] == 4
    for partition in (0, 1):
        before, after = topics.records(topic, partition), topics.records(copy, partition)
        assert [_content(one) for one in after] == [_content(one) for one in before]
        assert [dict(one.headers)["sluice.offset"] for one in after] == [b"%d" % n for n in range(6)]
    assert jobs.run("replay", **job, name="r").rows == 0


def test_a_topic_that_is_not_there_and_a_table_that_is_not_there(jobs: Runner, topics: Topics) -> None:
    with pytest.raises(JobError, match="there is no table"):
        jobs.run("replay", lake=jobs.path("nowhere"), topic="t")
    topic = topics.create("source", 1)
    topics.write(topic, ["x"])
    jobs.run("export", topics=[topic], to=jobs.path("lake"))
    with pytest.raises(JobError, match="no topic missing"):
        jobs.run("replay", lake=jobs.path("lake"), topic="missing")
