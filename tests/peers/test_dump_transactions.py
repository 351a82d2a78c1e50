"""Kafka's dump-log tool over transactions in a log of Sluice: markers, `.txnindex` and producer snapshots."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.peers.kafka import KafkaProcess, Tools
from tests.peers.test_dump_log import SEGMENT_BYTES, _dump, _forms
from tests.peers.tool_rows import MAINS

TOPIC = "dumped-transactions"
# With the name of those in test_tools, which lists all that there are.
TRANSACTIONAL_ID = "tools-tx-dumped"
COMMITTED, ABORTED = 10, 1500
# The aborted one is larger than a segment: a snapshot is taken while it is open.
VALUE = b"x" * 1000


@pytest.fixture(scope="module")
def directories(kafka: KafkaProcess, sluice: BrokerProcess, tools: Tools) -> tuple[Path, Path]:
    """The directories of a partition with a committed and an aborted transaction, Kafka's and ours."""
    for host in (kafka.bootstrap, sluice.kafka):
        where = ("--bootstrap-server", host, "--topic", TOPIC)
        created = tools.run(MAINS["topics"], *where, "--create", "--config", f"segment.bytes={SEGMENT_BYTES}")
        assert created.exit == 0, created
        producer = Producer({"bootstrap.servers": host, "transactional.id": TRANSACTIONAL_ID})
        producer.init_transactions(30)
        for records, end in (
            (COMMITTED, producer.commit_transaction),
            (ABORTED, producer.abort_transaction),
        ):
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(TOPIC, VALUE)
            assert producer.flush(30) == 0
            end(30)
    return kafka.logs / f"{TOPIC}-0", sluice.data_dir / f"{TOPIC}-0"


def test_our_markers_read_as_kafkas(directories: tuple[Path, Path], tools: Tools) -> None:
    found = []
    for directory in directories:
        dumps = [_dump(tools, file, "--deep-iteration") for file in sorted(directory.glob("*.log"))]
        text = "".join(dump.out for dump in dumps)
        markers = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text)
        offsets = re.findall(r"baseOffset: (\d+) .*isControl: true", text)
        assert set(re.findall(r"isvalid: (\w+)", text)) == {"true"}
        found.append((markers, offsets, {form for dump in dumps for form in _forms(dump)}))
    kafka, ours = found
    assert ours[:2] == ([("COMMIT", "0"), ("ABORT", "0")], [str(COMMITTED), str(COMMITTED + ABORTED + 1)])
    assert ours == kafka


def test_our_index_of_aborted_transactions_reads_as_kafkas(
    directories: tuple[Path, Path], tools: Tools
) -> None:
    entries = []
    for directory in directories:
        texts = [_dump(tools, file).out for file in sorted(directory.glob("*.txnindex"))]
        entries.append(
            re.findall(r"firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", "".join(texts))
        )
    first, last = COMMITTED + 1, COMMITTED + ABORTED + 1
    assert entries == [[(str(first), str(last), str(last + 1))]] * 2


def test_our_snapshot_of_an_open_transaction_reads_as_kafkas(
    directories: tuple[Path, Path], tools: Tools
) -> None:
    starts = []
    for directory in directories:
        # The first snapshot is that of the first roll, in the midst of the aborted transaction.
        text = _dump(tools, min(directory.glob("*.snapshot"))).out
        starts.append(
            (
                set(re.findall(r"currentTxnFirstOffset: (\S+)", text)),
                set(re.findall(r"coordinatorEpoch: (-?\d+)", text)),
            )
        )
    assert starts[0] == starts[1]
    assert str(COMMITTED + 1) in str(starts[1][0])
