"""Transactions of a real Kafka: both protocols (KIP-98, KIP-890), what readers see of them, and each error."""

from __future__ import annotations

import time
from typing import Any

from tests.peers.record import Recorder
from tests.peers.scripts import batch

TOPIC = "paid"


def transactions(to: Recorder) -> None:
    """Record committed and aborted transactions in each version, and what is refused."""
    topic_id = to.topic(TOPIC, 2)
    to.settled(
        "", "FindCoordinator", {"key_type": 1, "coordinator_keys": ["first"]}, versions=[4], keep=False
    )
    to.settled(
        "", "FindCoordinator", {"key_type": 0, "coordinator_keys": ["group"]}, versions=[4], keep=False
    )
    to.settled(
        "", "InitProducerId", {"transactional_id": "first", "transaction_timeout_ms": 60000}, keep=False
    )
    to.settled("", "DescribeGroups", {"groups": ["group"]}, versions=[5], keep=False)
    for version in to.versions("FindCoordinator"):
        if version:
            one = {"key_type": 1, "key": "v0", "coordinator_keys": ["v0"]}
            to.ask("find the coordinator", "FindCoordinator", one, versions=[version])
    for version in (0, 1, 2, 3, 4):
        _first_protocol(to, version)
    _second_protocol(to, topic_id)
    _readers(to, topic_id)
    _refused(to)
    _fenced(to, topic_id)
    _tables(to)
    _timed_out(to)


def init(
    to: Recorder, name: str, case: str = "init", version: int = 5, *, keep: bool = True, **more: Any
) -> dict[str, Any]:
    """Begin a transactional producer; the answer has its id and epoch."""
    asked = {"transactional_id": name, "transaction_timeout_ms": 60000, **more}
    made = to.settled(case, "InitProducerId", asked, versions=[version], keep=keep)
    return {
        "transactional_id": name,
        "producer_id": made["producer_id"],
        "producer_epoch": made["producer_epoch"],
    }


def add(producer: dict[str, Any], topic: str = TOPIC, partitions: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Return an AddPartitionsToTxn of a client, versions 0 to 3."""
    old = {f"v3_and_below_{name}": value for name, value in producer.items()}
    return {**old, "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}]}


def write(
    producer: dict[str, Any], sequence: int, *values: bytes, partition: int = 0, topic_id: Any = None
) -> dict[str, Any]:
    """Return a Produce of one transactional batch."""
    records = batch(
        *values, producer_id=producer["producer_id"], producer_epoch=producer["producer_epoch"],
        base_sequence=sequence, transactional=True,
    )  # fmt: skip
    data = [{"index": partition, "records": records}]
    topic = {"name": TOPIC, "partition_data": data, **({"topic_id": topic_id} if topic_id else {})}
    name = producer["transactional_id"]
    return {"transactional_id": name, "acks": -1, "timeout_ms": 5000, "topic_data": [topic]}


def commit_offsets(producer: dict[str, Any], group: str = "group", **more: Any) -> dict[str, Any]:
    """Return a TxnOffsetCommit of one partition."""
    offset = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": 0}
    return {**producer, "group_id": group, "topics": [{"name": TOPIC, "partitions": [offset]}], **more}


def _first_protocol(to: Recorder, version: int) -> None:
    """A transaction that names its partitions before it writes to them (KIP-98); committed, then aborted."""
    producer = init(to, f"v{version}", "TV1 init", version)
    produce = {0: 3, 1: 5, 2: 7, 3: 9, 4: 11}[version]
    for committed in (True, False):
        word = "commit" if committed else "abort"
        to.settled(
            f"TV1 {word}: add partitions", "AddPartitionsToTxn", add(producer), versions=[min(version, 3)]
        )
        sequence = 0 if committed else 1
        to.ask(f"TV1 {word}: produce", "Produce", write(producer, sequence, b"x"), versions=[produce])
        offsets = {**producer, "group_id": "group"}
        to.settled(f"TV1 {word}: add offsets", "AddOffsetsToTxn", offsets, versions=[min(version, 4)])
        to.ask(
            f"TV1 {word}: offsets", "TxnOffsetCommit", commit_offsets(producer), versions=[min(version, 4)]
        )
        to.ask(f"TV1 {word}: end", "EndTxn", {**producer, "committed": committed}, versions=[min(version, 4)])


def _second_protocol(to: Recorder, topic_id: Any) -> None:
    """A transaction that begins with its first write, and whose end raises the epoch (KIP-890)."""
    producer = init(to, "second", "TV2 init")
    for committed in (True, False):
        word = "commit" if committed else "abort"
        to.settled(f"TV2 {word}: produce", "Produce", write(producer, 0, b"a", b"b"), versions=[12])
        more = write(producer, 2, b"c", topic_id=topic_id)
        to.ask(f"TV2 {word}: produce again", "Produce", more, versions=[13])
        to.ask(f"TV2 {word}: offsets", "TxnOffsetCommit", commit_offsets(producer), versions=[5])
        ended = to.ask(f"TV2 {word}: end", "EndTxn", {**producer, "committed": committed}, versions=[5])
        again = {**producer, "committed": committed}
        to.settled(f"TV2 {word}: end again, old epoch", "EndTxn", again, versions=[5])
        producer |= {"producer_id": ended["producer_id"], "producer_epoch": ended["producer_epoch"]}
    to.settled("TV2 end of nothing: abort", "EndTxn", {**producer, "committed": False}, versions=[5])


def _fetch(topic_id: Any, isolation: int, partition: int = 0, offset: int = 0) -> dict[str, Any]:
    one = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 100_000}
    topics = [{"topic": TOPIC, "topic_id": topic_id, "partitions": [one]}]
    return {"max_wait_ms": 0, "isolation_level": isolation, "topics": topics}


def _readers(to: Recorder, topic_id: Any) -> None:
    """Fetch and ListOffsets while a transaction is open, and after its end, with the markers."""
    for word, committed in (("abort", False), ("commit", True)):
        producer = init(to, "readers", keep=False)
        to.settled("", "AddPartitionsToTxn", add(producer, partitions=(1,)), versions=[3], keep=False)
        to.ask(f"{word}: produce", "Produce", write(producer, 0, b"r", partition=1), versions=[11])
        for when in ("open", "ended"):
            if when == "ended":
                to.ask(f"{word}: end", "EndTxn", {**producer, "committed": committed}, versions=[4])
                _wait_for_markers(to, topic_id)
            for isolation in (0, 1):
                case = f"{word}: fetch, {when}, isolation {isolation}"
                versions = (4, 11, 12, to.versions("Fetch")[-1]) if isolation else (12,)
                to.ask(case, "Fetch", _fetch(topic_id, isolation, 1), versions=versions)
                asked = [{"name": TOPIC, "partitions": [{"partition_index": 1, "timestamp": -1}]}]
                latest = {"replica_id": -1, "isolation_level": isolation, "topics": asked}
                to.ask(f"{word}: latest, {when}, isolation {isolation}", "ListOffsets", latest)
            asked = {"topics": [{"name": TOPIC, "partition_indexes": [1]}]}
            to.ask(f"{word}: producers, {when}", "DescribeProducers", asked)
            to.ask(f"{word}: describe, {when}", "DescribeTransactions", {"transactional_ids": ["readers"]})


def _wait_for_markers(to: Recorder, topic_id: Any, partition: int = 1) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        read = to.ask("", "Fetch", _fetch(topic_id, 1, partition), versions=[12], keep=False)
        one = read["responses"][0]["partitions"][0]
        if one["last_stable_offset"] == one["high_watermark"]:
            return
        time.sleep(0.02)


def _refused(to: Recorder) -> None:
    """Each error that a client can bring about by itself."""
    too_long = {"transactional_id": "long", "transaction_timeout_ms": 2_000_000_000}
    to.ask("init: timeout too long", "InitProducerId", too_long, versions=to.ends("InitProducerId"))
    to.ask("init: timeout 0", "InitProducerId", {**too_long, "transaction_timeout_ms": 0})
    to.ask("init: empty id", "InitProducerId", {**too_long, "transactional_id": ""})
    producer = init(to, "refused")
    id_, epoch = producer["producer_id"], producer["producer_epoch"]
    for case, other in (
        ("another producer id", {"producer_id": id_ + 1000}),
        ("epoch too high", {"producer_epoch": epoch + 1}),
        ("unknown transactional id", {"transactional_id": "nobody"}),
        ("empty transactional id", {"transactional_id": ""}),
    ):
        wrong = {**producer, **other}
        ends = {name: to.ends(name) for name in ("AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit")}
        to.ask(f"add partitions: {case}", "AddPartitionsToTxn", add(wrong), versions=[0, 3])
        to.ask(
            f"add offsets: {case}",
            "AddOffsetsToTxn",
            {**wrong, "group_id": "group"},
            versions=ends["AddOffsetsToTxn"],
        )
        to.ask(
            f"commit offsets: {case}",
            "TxnOffsetCommit",
            commit_offsets(wrong),
            versions=ends["TxnOffsetCommit"],
        )
        to.ask(f"end: {case}", "EndTxn", {**wrong, "committed": True}, versions=ends["EndTxn"])
        to.ask(f"produce: {case}", "Produce", write(wrong, 0, b"x"), versions=[11, 12])
        resumed = {**wrong, "transaction_timeout_ms": 60000}
        to.ask(f"init: {case}", "InitProducerId", resumed)
    to.ask("end: nothing begun", "EndTxn", {**producer, "committed": True}, versions=[0, 4])
    to.ask("add partitions: unknown topic", "AddPartitionsToTxn", add(producer, "nowhere"), versions=[0, 3])
    unknown = add(producer, partitions=(0, 9))
    to.ask("add partitions: one unknown", "AddPartitionsToTxn", unknown, versions=[0, 3])
    to.ask("add offsets: empty group", "AddOffsetsToTxn", {**producer, "group_id": ""})
    to.ask("produce: not added", "Produce", write(producer, 0, b"x"), versions=[11])
    wrong = commit_offsets(producer, generation_id=3, member_id="nobody")
    to.settled("", "AddOffsetsToTxn", {**producer, "group_id": "group"}, versions=[3], keep=False)
    to.ask("commit offsets: unknown member", "TxnOffsetCommit", wrong, versions=[3, 5])
    plain = {
        "transactional_id": None,
        **{k: v for k, v in write(producer, 0, b"x").items() if k != "transactional_id"},
    }
    to.ask("produce: transactional batch, no transactional id", "Produce", plain, versions=[3, 11, 12])
    to.ask("end", "EndTxn", {**producer, "committed": False}, versions=[4])


def _fenced(to: Recorder, topic_id: Any) -> None:
    """A second producer of the same transactional id fences the first one, and aborts what it has open."""
    old = init(to, "fenced", "fenced: first")
    to.settled("fenced: add partitions", "AddPartitionsToTxn", add(old), versions=[3])
    to.ask("fenced: produce", "Produce", write(old, 0, b"f"), versions=[11])
    new = init(to, "fenced", "fenced: second")
    _wait_for_markers(to, topic_id, 0)
    to.ask("fenced: old adds partitions", "AddPartitionsToTxn", add(old), versions=[0, 1, 2, 3])
    to.ask("fenced: old produces", "Produce", write(old, 1, b"f"), versions=[9, 11, 12])
    to.ask("fenced: old adds offsets", "AddOffsetsToTxn", {**old, "group_id": "group"}, versions=range(5))
    to.ask("fenced: old commits offsets", "TxnOffsetCommit", commit_offsets(old), versions=range(6))
    to.ask("fenced: old ends", "EndTxn", {**old, "committed": True}, versions=range(6))
    resumed = {**old, "transaction_timeout_ms": 60000}
    to.ask("fenced: old resumes", "InitProducerId", resumed, versions=range(3, 6))
    to.settled(
        "fenced: new resumes", "InitProducerId", {**new, "transaction_timeout_ms": 60000}, versions=[4]
    )


def _tables(to: Recorder) -> None:
    """DescribeTransactions, ListTransactions, WriteTxnMarkers."""
    producer = init(to, "listed")
    to.settled("listed: add partitions", "AddPartitionsToTxn", add(producer, partitions=(0, 1)), versions=[3])
    to.ask("describe", "DescribeTransactions", {"transactional_ids": ["listed", "unseen", ""]})
    asked = [{"name": TOPIC, "partitions": [0]}, {"name": "nowhere", "partitions": [0]}]
    verified = {**producer, "verify_only": True, "topics": asked}
    to.ask("verify", "AddPartitionsToTxn", {"transactions": [verified]}, versions=[4, 5])
    for case, asked in {
        "list": {"duration_filter": -1},
        "list: ongoing": {"state_filters": ["Ongoing"]},
        "list: unknown state": {"state_filters": ["Ongoing", "Resting"]},
        "list: one producer": {"producer_id_filters": [producer["producer_id"]]},
    }.items():
        to.ask(case, "ListTransactions", asked, versions=to.versions("ListTransactions"))
    to.ask("list: long ones", "ListTransactions", {"duration_filter": 100_000})
    to.ask("list: pattern", "ListTransactions", {"transactional_id_pattern": "lis.*"})
    to.ask("list: bad pattern", "ListTransactions", {"transactional_id_pattern": "("})
    marker = {
        "producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"],
        "topics": [{"name": TOPIC, "partition_indexes": [0, 9]}, {"name": "nowhere", "partition_indexes": [0]}],
    }  # fmt: skip
    to.ask("markers", "WriteTxnMarkers", {"markers": [marker]}, versions=to.ends("WriteTxnMarkers"))
    to.ask("end", "EndTxn", {**producer, "committed": False}, versions=[4])


def _timed_out(to: Recorder) -> None:
    """A transaction that its producer leaves open is aborted by the coordinator, which raises the epoch."""
    producer = init(to, "late", "late: init", transaction_timeout_ms=1000)
    to.settled("late: add partitions", "AddPartitionsToTxn", add(producer), versions=[3])
    to.ask("late: produce", "Produce", write(producer, 0, b"l"), versions=[11])
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        states = to.ask("", "DescribeTransactions", {"transactional_ids": ["late"]}, keep=False)
        if states["transaction_states"][0]["transaction_state"] == "CompleteAbort":
            break
        time.sleep(0.1)
    to.ask("late: describe", "DescribeTransactions", {"transactional_ids": ["late"]})
    to.ask("late: produce again", "Produce", write(producer, 1, b"l"), versions=[11, 12])
    to.ask("late: add partitions again", "AddPartitionsToTxn", add(producer), versions=[1, 3])
    to.ask("late: end", "EndTxn", {**producer, "committed": True}, versions=[0, 1, 4, 5])
    to.settled("late: resume", "InitProducerId", {**producer, "transaction_timeout_ms": 60000}, versions=[5])
