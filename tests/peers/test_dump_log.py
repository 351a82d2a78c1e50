"""Kafka's dump-log tool over rolled segments of Sluice: logs, indexes and producer snapshots, as over its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.peers.kafka import KafkaProcess, Said, Tools
from tests.peers.tool_rows import MAINS

TOPIC = "dumped-segments"
# 3 MB into segments of 1 MB, which is the least that Kafka 4.1 takes.
SEGMENT_BYTES = 1 << 20
RECORDS, RECORD_BYTES = 3000, 1000


@pytest.fixture(scope="module")
def directories(kafka: KafkaProcess, sluice: BrokerProcess, tools: Tools) -> tuple[Path, Path]:
    """The directories of a partition with rolled segments, Kafka's and ours."""
    for host in (kafka.bootstrap, sluice.kafka):
        where = ("--bootstrap-server", host, "--topic", TOPIC)
        created = tools.run(MAINS["topics"], *where, "--create", "--config", f"segment.bytes={SEGMENT_BYTES}")
        assert created.exit == 0, created
        load = ("--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
        properties = ("--producer-props", f"bootstrap.servers={host}", "linger.ms=5")
        sent = tools.run(MAINS["producer-perf-test"], "--topic", TOPIC, *load, *properties)
        assert f"{RECORDS} records sent" in sent.out, sent
    return kafka.logs / f"{TOPIC}-0", sluice.data_dir / f"{TOPIC}-0"


def _dump(tools: Tools, file: Path, *options: str) -> Said:
    said = tools.run(MAINS["dump-log"], "--files", str(file), *options)
    assert (said.exit, said.err) == (0, ""), f"{file.name}: {said.err[:2000]}"
    return said


def _forms(said: Said) -> set[str]:
    """The lines with their numbers left out: what the tool can read in a file."""
    lines = said.out.splitlines()[1:]
    return {re.sub(r"(?<!compresscodec: )-?\b\d+\b", "N", line) for line in lines}


def _rolled(directory: Path, suffix: str) -> list[Path]:
    """The files of segments that are full, in order; the newest segment is still written."""
    newest = max(directory.glob("*.log"))
    found = [file for file in sorted(directory.glob(f"*{suffix}")) if file.stem < newest.stem]
    assert found, f"no rolled {suffix} in {sorted(one.name for one in directory.iterdir())}"
    return found


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_rolled_file_of_ours_reads_as_one_of_kafkas(
    directories: tuple[Path, Path], tools: Tools, suffix: str
) -> None:
    kafka, ours = ([_dump(tools, file) for file in _rolled(directory, suffix)] for directory in directories)
    assert set().union(*map(_forms, ours)) == set().union(*map(_forms, kafka))


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_our_indexes_pass_kafkas_checks(
    directories: tuple[Path, Path], tools: Tools, suffix: str, option: str
) -> None:
    for file in _rolled(directories[1], suffix):
        _dump(tools, file, option)


def test_our_batches_hold_every_record_with_a_right_checksum(
    directories: tuple[Path, Path], tools: Tools
) -> None:
    logs = [_dump(tools, file, "--deep-iteration") for file in sorted(directories[1].glob("*.log"))]
    text = "".join(log.out for log in logs)
    assert [int(one) for one in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)] == list(range(RECORDS))
    assert set(re.findall(r"isvalid: (\w+)", text)) == {"true"}


def test_our_producer_snapshots_read_as_kafkas(directories: tuple[Path, Path], tools: Tools) -> None:
    kafka, ours = (
        [_dump(tools, file) for file in sorted(directory.glob("*.snapshot"))] for directory in directories
    )
    assert ours and kafka
    assert set().union(*map(_forms, ours)) == set().union(*map(_forms, kafka))
