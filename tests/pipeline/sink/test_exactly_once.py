"""Exactly once without Spark: tasks and drivers that write twice or too late, against a broker."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from core.protocol.messages.list_transactions import ListTransactionsRequest
from pipeline.sink.delivery import delivery
from pipeline.sink.exactly_once import BatchError, Marker, group
from pipeline.sink.marks import Writer
from pipeline.sink.options import write_options
from pipeline.sink.written import Batch, Written
from pipeline.source.options import OptionError
from pipeline.wire import groups, transactions
from pipeline.wire.cluster import Cluster
from pipeline.wire.errors import ConnectionLostError
from pipeline.wire.http import HttpApi
from tests.pipeline.answering import answering
from tests.pipeline.topics import Topics

PARTITIONS = 2
NAMES = itertools.count()
Call = Callable[..., Mapping[str, Any]]


class Query:
    """A query that writes to a topic of its own, driven by hand."""

    def __init__(
        self, topics: Topics, name: str = "", topic: str = "", *, streaming: bool = True, **more: str
    ) -> None:
        number = next(NAMES)
        self.topics = topics
        self.name = name or f"query-{number}"
        self.topic = topic or topics.create(f"out-{number}", PARTITIONS)
        self.options = write_options(
            {
                **topics.options,
                "topic": self.topic,
                "delivery": "exactly-once",
                "httpUrl": topics.broker.http,
                "kafka.default.api.timeout.ms": "10000",
                **more,
            }
        )
        self.delivery = delivery(self.options, streaming=streaming)

    def write(
        self, batch: int, task: int, *values: str, attempt: int = 0, partition: int | None = None
    ) -> Written:
        """One attempt of a task writes values, to the partition of its number."""
        part = task if partition is None else partition
        rows = pa.record_batch(
            {
                "value": [one.encode() for one in values],
                "partition": pa.array([part] * len(values), pa.int32()),
            }
        )
        return self.delivery.write([rows], Writer(self.name, str(batch), task, attempt))

    def run(self, batch: int, *values: str) -> list[Written]:
        """A batch of two tasks, from its beginning to its end; each task writes all values."""
        written = [self.write(batch, task, *values) for task in range(PARTITIONS)]
        self.delivery.commit(written)
        return written

    @property
    def found(self) -> list[list[str]]:
        """What readers of committed records see, by partition."""
        url = f"{self.topics.broker.http}/api/v1/topics/{self.topic}/partitions"
        pages = []
        for partition in range(PARTITIONS):
            path = f"{url}/{partition}/records?offset=0&limit=1000&encoding=utf8"
            with urllib.request.urlopen(path) as answer:
                pages.append([record["value"] for record in json.load(answer)["records"]])
        return pages

    @property
    def open(self) -> list[str]:
        """The open transactions of this query."""
        answer = self.topics.wire.call(66, ListTransactionsRequest(state_filters=["Ongoing"]), 0)
        ids = [one.transactional_id for one in answer.transaction_states]
        return sorted(one for one in ids if one.startswith(f"spark/{self.name}/"))

    @property
    def marker(self) -> int | None:
        """The next batch, as the broker has it."""
        with Cluster(self.options.settings) as cluster:
            return groups.committed(cluster, group(self.name), {self.topic: [0]}).get((self.topic, 0))


@pytest.fixture
def query(topics: Topics) -> Query:
    """A streaming query of this test."""
    return Query(topics)


def spoil(monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Call], Call]) -> None:
    """Put something between the driver and the answers to its commits."""
    real = HttpApi.call

    def call(self: HttpApi, method: str, path: str, body: object = None) -> Mapping[str, Any]:
        def asked() -> Mapping[str, Any]:
            return real(self, method, path, body)

        return wrap(asked)() if path.endswith(":commit") else asked()

    monkeypatch.setattr(HttpApi, "call", call)


def test_a_batch_is_visible_at_once_when_the_driver_commits_it(query: Query) -> None:
    written = [query.write(0, task, f"a{task}", f"b{task}") for task in range(PARTITIONS)]
    assert query.found == [[], []]
    assert query.open == [f"spark/{query.name}/0/{task}/0" for task in range(PARTITIONS)]
    assert [one.records for one in written] == [{(query.topic, 0): 2}, {(query.topic, 1): 2}]
    query.delivery.commit(written)
    assert query.found == [["a0", "b0"], ["a1", "b1"]]
    assert (query.marker, query.open) == (1, [])
    query.run(1, "c")
    assert query.found == [["a0", "b0", "c"], ["a1", "b1", "c"]]


def test_a_batch_that_is_run_again_writes_nothing(query: Query) -> None:
    query.run(0, "a")
    query.run(1, "b")
    assert [one.skipped for one in query.run(1, "b")] == [True, True]
    assert query.found == [["a", "b"]] * 2
    query.run(2, "c")
    assert (query.found, query.marker) == ([["a", "b", "c"]] * 2, 3)


def test_a_batch_without_rows_is_counted(query: Query) -> None:
    query.run(0)
    assert (query.found, query.marker) == ([[], []], 1)
    assert [one.skipped for one in query.run(0, "late")] == [True, True]


def test_a_new_checkpoint_skips_nothing(query: Query, topics: Topics) -> None:
    query.run(0, "a")
    Query(topics, topic=query.topic).run(0, "b")
    assert query.found == [["a", "b"]] * 2


def test_an_old_checkpoint_is_refused(query: Query) -> None:
    for batch in range(3):
        query.run(batch, "a")
    with pytest.raises(
        BatchError, match=r"batch 1 of query .* and batches up to 2 after it: the checkpoint is older"
    ):
        query.run(1, "b")
    assert query.found == [["a"] * 3] * 2


def test_a_write_with_a_name_and_a_number_may_be_repeated_whichever_it_was(topics: Topics) -> None:
    query = Query(topics, streaming=False)
    for version in (3, 7, 3, 5):
        query.run(version, str(version))
    assert (query.found, query.marker) == ([["3", "7"]] * 2, 8)


def test_an_answer_that_is_lost_is_found_in_the_marker(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def lossy(asked: Call) -> Call:
        def call() -> Mapping[str, Any]:
            nonlocal calls
            calls += 1
            asked()
            raise ConnectionLostError("the answer was lost")

        return call

    spoil(monkeypatch, lossy)
    query.run(0, "a")
    assert (calls, query.found, query.marker, query.open) == (2, [["a"]] * 2, 1, [])


def test_a_request_that_is_lost_is_sent_again(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [True]

    def lossy(asked: Call) -> Call:
        def call() -> Mapping[str, Any]:
            if lost:
                lost.pop()
                raise ConnectionLostError("the request was lost")
            return asked()

        return call

    spoil(monkeypatch, lossy)
    query.run(0, "a")
    assert (query.found, query.marker) == ([["a"]] * 2, 1)


def test_an_attempt_that_spark_gave_up_is_aborted_and_can_write_no_more(query: Query) -> None:
    query.write(0, 0, "given up", attempt=0)
    written = [query.write(0, 0, "a", attempt=1), query.write(0, 1, "a")]
    assert len(query.open) == 3
    query.delivery.commit(written)
    assert (query.found, query.open) == ([["a"]] * 2, [])


def test_what_a_killed_driver_left_open_is_taken_over_by_the_next_one(query: Query) -> None:
    left = [query.write(0, task, "left") for task in range(PARTITIONS)]
    query.write(0, 5, "left", partition=1)
    query.run(0, "a")
    assert (query.found, query.open) == ([["a"]] * 2, [])
    # The killed one was only slow: the batch is there, and not by what it had written.
    query.delivery.commit(left)
    assert query.found == [["a"]] * 2


def test_of_two_drivers_that_commit_one_batch_at_once_one_does(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [query.write(0, task, "first") for task in range(PARTITIONS)]
    second = [query.write(0, task, "second", attempt=9) for task in range(PARTITIONS)]
    overtaken = [True]

    def overtake(asked: Call) -> Call:
        def call() -> Mapping[str, Any]:
            # The first driver has read the marker; now the second one commits.
            if overtaken:
                overtaken.pop()
                query.delivery.commit(second)
            return asked()

        return call

    spoil(monkeypatch, overtake)
    query.delivery.commit(first)
    assert (query.found, query.marker, query.open) == ([["second"]] * 2, 1, [])


def test_a_transaction_that_has_ended_fails_the_whole_batch_which_is_done_again(query: Query) -> None:
    written = [query.write(0, task, "a") for task in range(PARTITIONS)]
    with Cluster(query.options.settings) as cluster:
        ended = written[1].transaction
        assert ended is not None
        transactions.abort(cluster, ended)
    with pytest.raises(
        BatchError, match=r"nothing of batch 0 was written.*kafka.transaction.timeout.ms \(900000 ms\)"
    ):
        query.delivery.commit(written)
    assert (query.found[1], query.marker) == ([], None)
    # Spark calls this after a commit that has failed.
    query.delivery.abort([*written, None])
    assert (query.found, query.open) == ([[], []], [])
    query.run(0, "a")
    assert (query.found, query.marker) == ([["a"]] * 2, 1)


def test_a_task_whose_transaction_ends_while_it_writes_says_so(query: Query) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        with Cluster(query.options.settings) as cluster:
            transactions.begin(cluster, f"spark/{query.name}/0/0/0", 1000)
        yield pa.record_batch({"value": [b"late"]})

    with pytest.raises(BatchError, match=r"INVALID_PRODUCER_EPOCH.*kafka.transaction.timeout.ms"):
        query.delivery.write(rows(), Writer(query.name, "0", 0))
    assert query.found == [[], []]


def test_a_task_that_fails_leaves_no_transaction_open(query: Query) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"x" * 600_000] * 2})
        raise ValueError("a row makes no sense")

    with pytest.raises(ValueError, match="a row makes no sense"):
        query.delivery.write(rows(), Writer(query.name, "0", 0))
    assert (query.found, query.open) == ([[], []], [])


def test_a_stream_whose_tasks_do_not_know_their_batch_is_refused(query: Query) -> None:
    with pytest.raises(BatchError, match="does not tell this task its query and its batch"):
        query.delivery.write([], Writer("", "-", 0))


def test_a_marker_that_is_deleted_while_a_batch_is_skipped_fails_it(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.run(0, "a")
    skipped = [query.write(0, task, "a") for task in range(PARTITIONS)]
    monkeypatch.setattr(groups, "committed", lambda *_: {})
    with pytest.raises(BatchError, match="the marker of batch 0 was there and is not"):
        query.delivery.commit(skipped)


@pytest.mark.parametrize(
    ("found", "batch", "has"), [(None, 0, False), (4, 3, True), (4, 4, False), (4, 9, False), (1, 0, True)]
)
def test_a_marker_has_the_batches_below_it(found: int | None, batch: int, has: bool) -> None:
    for replays_last in (True, False):
        assert Marker(found, replays_last).has(Batch("q", batch)) is has


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, b"", "which is not at httpUrl http://.*: 404"),
        (200, b'{"name": "other"}', "the answer is not Sluice's"),
        (
            200,
            b'{"name": "sluice", "cluster_id": "another"}',
            "is of cluster another, kafka.bootstrap.servers",
        ),
    ],
)
def test_what_is_no_sluice_or_another_one_is_refused_before_anything_is_written(
    topics: Topics, status: int, body: bytes, says: str
) -> None:
    with answering(status, body) as (url, _):
        options = {**topics.options, "topic": "t", "delivery": "exactly-once", "httpUrl": url}
        with pytest.raises(OptionError, match=says):
            delivery(write_options(options), streaming=True).check()


def test_the_two_addresses_of_one_broker_are_taken(query: Query) -> None:
    query.delivery.check()


def test_a_timeout_that_the_broker_does_not_allow_is_told_by_its_option(topics: Topics) -> None:
    query = Query(topics, **{"kafka.transaction.timeout.ms": "900001"})
    with pytest.raises(
        OptionError, match=r"kafka.transaction.timeout.ms: the broker allows less than 900001 ms"
    ):
        query.write(0, 0, "a")


def test_a_broker_that_is_killed_before_the_commit_has_kept_what_the_tasks_wrote(query: Query) -> None:
    written = [query.write(0, task, "a") for task in range(PARTITIONS)]
    query.topics.broker.kill()
    query.topics.broker.start()
    query.delivery.commit(written)
    assert (query.found, query.marker) == ([["a"]] * 2, 1)
