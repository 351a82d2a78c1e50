"""Kafka's own command-line tools against a real Kafka 4.1 and against Sluice: what both say, compared row by row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS
from tests.clients.members.member import Member
from tests.peers.kafka import KafkaProcess, Said, Tools
from tests.peers.tool_rows import CHAPTERS, FILES, MAINS, OPTION_FIRST, Row
from tests.peers.tool_table import README, table

# What of an answer no two runs have in common, in the order in which it is replaced.
_NOISE = (
    (r"^\[\d{4}-\d\d-\d\d [\d:,]+\] ", ""),
    (r"\n\t(at |\.\.\. ).*", ""),
    # A broker of Kafka learns of a new topic a moment after the tool that created it was answered.
    (r"^WARN \[[^]]*\] The metadata response from the cluster reported a recoverable issue .*$", ""),
    # The tools share a JVM: a client of another file looks for its broker, which has been stopped. The peer is HOST.
    (r"^WARN \[[^]]*\] Connection to node -?\d+ \(/127\.0\.0\.1:\d+\) could not be established\..*$", ""),
    (r"(TopicId|Cluster ID): [\w-]{22}", r"\1: ID"),
    (r"\b(console-consumer|perf-consumer|adminclient)-\d+", r"\1-N"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r'("timestamp":|CreateTime: |crc: |LastTimestamp |correlation id )\d+', r"\1N"),
    (r"(producerId: )\d+", r"\1N"),
    (r"\b1[5-9]\d{11}\b", "TIME"),
    # Kafka 4.1 sets this for the whole cluster when storage is formatted (KIP-966).
    (r"Configs: min\.insync\.replicas=1,?", "Configs: "),
    (r"DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, ", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d+", "TIME"),
    (r"[ \t]+", " "),
    # The producer ids of transactions, and for how long one has been open.
    (r"(tools-tx-\w+ 1) \d+ ", r"\1 N "),
    (r"^(1 tools-tx-\w+) \d+ ", r"\1 N "),
    (r"( 900000 TIME) \d+ ", r"\1 N "),
)
# Of what tools have measured only the number of records and their size remain.
_MEASURED = {
    "features": (r"Epoch: \d+", "Epoch: N"),
    # Members make their ids themselves, or get them as a UUID of the same form.
    "consumer-groups": (r"(?<![\w.-])[\w-]{22}(?![\w-])", "MEMBER"),
    "producer-perf-test": (r"(\d+ records sent), .*", r"\1"),
    "consumer-perf-test": (r"^(TIME, TIME, [\d.]+), [\d.]+, (\d+), .*", r"\1, \2"),
    # How many bytes a timestamp takes depends on its distance from the batch's.
    "dump-log": (r"(position|size): \d+", r"\1: N"),
    # Which number a producer has depends on those before it.
    "transactions": (r"^\d+ (\d+ -?\d+ \d+ TIME)", r"N \1"),
    "metadata-quorum": (r"^1 (\S+) \d+ 0 TIME", r"1 \1 N 0 TIME"),
    "e2e-latency": (r"\d+(\.\d+)?", "N"),
    "verifiable-producer": (r'"avg_throughput":[\d.]+', '"avg_throughput":N'),
}


class Peer(NamedTuple):
    """A broker under test, as the rows see it."""

    host: str
    data: Path


class Answers(NamedTuple):
    """What the two said, without what no two runs have in common."""

    kafka: tuple[int, str]
    sluice: tuple[int, str]


def _command(row: Row, peer: Peer, files: Path) -> list[str]:
    script, *arguments = shlex.split(row.line)
    filled = [one.format(host=peer.host, data=peer.data, files=files) for one in arguments]
    if script == "dump-log" or "{host}" in row.line:
        return [MAINS[script], *filled]
    option = ["--bootstrap-server", peer.host]
    return [MAINS[script], *([*option, *filled] if script in OPTION_FIRST else [*filled, *option])]


def _plain(row: Row, said: Said, peer: Peer, files: Path) -> tuple[int, str]:
    text = f"{said.out}\n{said.err}".replace(peer.host, "HOST").replace(str(peer.data), "DATA")
    text = text.replace(str(files), "FILES")
    text = re.sub(rf"\b{peer.host.partition(':')[2]}\b", "PORT", text)
    for pattern, put in _NOISE:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    if measured := _MEASURED.get(row.line.split()[0]):
        text = re.sub(*measured, text, flags=re.MULTILINE)
    kept = (
        line for line in text.splitlines() if row.only in line and not any(o in line for o in row.without)
    )
    lines = [line.strip() for line in kept if line.strip()]
    return said.exit, "\n".join(lines if row.ordered else sorted(lines))


GetAnswers = Callable[[str], list[Answers]]


@pytest.fixture(scope="session")
def answers(
    kafka: KafkaProcess, sluice: BrokerProcess, tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GetAnswers]:
    """Run all rows of a chapter on both, once."""
    # Users that tests of other files have made and deleted leave the authorizer on, up to a start without users.
    assert sluice.stop() == 0
    sluice.start()
    files = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (files / name).write_text(content)
    peers = (Peer(kafka.bootstrap, kafka.logs), Peer(sluice.kafka, sluice.data_dir))
    known: dict[str, list[Answers]] = {}
    members: list[Member] = []
    assigned: list[Member] = []
    producers: list[Producer] = []

    def run(row: Row, peer: Peer) -> tuple[int, str]:
        main, *arguments = _command(row, peer, files)
        return _plain(row, tools.run(main, *arguments, text=row.text), peer, files)

    def get(chapter: str) -> list[Answers]:
        if chapter not in known:
            if chapter == "live group":
                members.extend(_join(broker, tools, "tools-live") for broker in (kafka, sluice))
            if chapter == "live consumer group":
                assigned.extend(
                    _join(broker, tools, "tools-live-848", "consumer") for broker in (kafka, sluice)
                )
            if chapter == "left consumer group":
                get("live consumer group")
                for member in assigned:
                    member.leave()
                assigned.clear()
            if chapter == "live transactions":
                producers.extend(one for broker in (kafka, sluice) for one in _transact(broker, tools))
            known[chapter] = [Answers(*(run(row, peer) for peer in peers)) for row in CHAPTERS[chapter]]
        return known[chapter]

    yield get
    for member in (*members, *assigned):
        member.kill()


def _join(broker: KafkaProcess | BrokerProcess, tools: Tools, name: str, protocol: str = "classic") -> Member:
    options = ("--bootstrap-server", broker.kafka, "--create", "--topic", name, "--partitions", "2")
    assert tools.run(MAINS["topics"], *options).exit == 0
    member = Member("java-4.1", broker, name, name, protocol=protocol)
    member.wait_for(lambda member: len(member.assigned or []) == 2)
    return member


def _transact(broker: KafkaProcess | BrokerProcess, tools: Tools) -> Iterator[Producer]:
    options = ("--bootstrap-server", broker.kafka, "--create", "--topic", "tools-tx-live")
    assert tools.run(MAINS["topics"], *options).exit == 0
    for name in ("committed", "aborted", "open"):
        producer = Producer(
            {
                "bootstrap.servers": broker.kafka,
                "transactional.id": f"tools-tx-{name}",
                # The longest that there is: the tools have time enough.
                "transaction.timeout.ms": 900_000,
            }
        )
        producer.init_transactions(CALL_SECONDS)
        producer.begin_transaction()
        producer.produce("tools-tx-live", name, partition=0)
        assert producer.flush(CALL_SECONDS) == 0
        if name == "committed":
            producer.commit_transaction(CALL_SECONDS)
        elif name == "aborted":
            producer.abort_transaction(CALL_SECONDS)
        yield producer


def _parameters() -> Iterator[object]:
    for chapter, rows in CHAPTERS.items():
        for number, row in enumerate(rows):
            marks = (
                [pytest.mark.xfail(reason=f"waits for {row.waits}", strict=True, raises=AssertionError)]
                if row.waits
                else []
            )
            name = re.sub(r"[^\w.=-]+", "_", row.line)[:60]
            yield pytest.param(chapter, number, id=f"{chapter}-{number}-{name}", marks=marks)


@pytest.mark.parametrize(("chapter", "number"), list(_parameters()))
def test_a_tool_says_to_sluice_what_it_says_to_kafka(answers: GetAnswers, chapter: str, number: int) -> None:
    row = CHAPTERS[chapter][number]
    kafka, sluice = answers(chapter)[number]
    if row.how == "same":
        assert sluice == kafka
    elif row.how == "words":
        assert (sluice[0], _exceptions(sluice[1])) == (kafka[0], _exceptions(kafka[1]))
        assert row.says in sluice[1]
    else:
        assert sluice != kafka, "this row is the same by now"
        assert row.sluice in sluice[1]
        assert sluice[0] == row.exit


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_kafka_says_what_the_table_says_of_it(answers: GetAnswers, chapter: str) -> None:
    found = zip(CHAPTERS[chapter], answers(chapter), strict=True)
    assert [(row.line, one.kafka) for row, one in found if row.says not in one.kafka[1]] == []


def _exceptions(text: str) -> set[str]:
    return set(re.findall(r"\w+Exception\b", text))


def test_the_table_is_what_the_rows_say() -> None:
    assert table() in README.read_text(), "run python -m tests.peers.tool_table"
