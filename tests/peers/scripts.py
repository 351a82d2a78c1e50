"""What the two brokers are asked about topics, configs, records and offsets; `group_scripts` has the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from core.records.batch import build_batch
from core.records.record import NewRecord

# Fixed and not long ago: both sides get the same bytes, and retention takes nothing away.
from tests.clients.wire import NOW
from tests.peers.differential import Side
from tests.peers.raw import Data, Request

UNKNOWN_ID = UUID(int=0x1234_5678)
TOPIC, BROKER = 2, 4


def batch(*values: bytes, **options: Any) -> bytes:
    """Return a record batch whose records are a second apart."""
    records = [NewRecord(None, value, timestamp=NOW + i * 1000) for i, value in enumerate(values)]
    return bytes(build_batch(records, now_ms=NOW, **options))


def topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """Return an entry of CreateTopics; `configs` is a dict."""
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": configs,
        **more,
    }


def make(side: Side, name: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic; not compared. Returns its whole name."""
    name = side.name(name)
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    last = side.versions("CreateTopics")[-1]
    silently(side, "CreateTopics", last, {"topics": [topic(name, partitions, configs=configs)]})
    for partition in range(partitions):
        wait_for(side, "ListOffsets", 7, offsets_of(name, -1, partition=partition))
    return name


def settle(side: Side) -> None:
    """Wait until the broker shows what the controller has answered: Kafka applies metadata records in order."""
    make(side, f"settled-{len(side.peer.answers)}")


def silently(side: Side, api: str, version: int, request: Request) -> dict[str, Any]:
    """Ask something that is not compared."""
    answer = side.peer.ask("", api, version, request)
    side.learn(answer)
    side.peer.answers.pop()
    return answer


def wait_for(side: Side, api: str, version: int, request: Request) -> None:
    """Ask until the answer holds no error: Kafka answers CreateTopics before the broker leads the partitions."""
    deadline = time.monotonic() + 10
    while _errors(silently(side, api, version, request)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _errors(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_errors, value))
    return isinstance(value, dict) and (bool(value.get("error_code")) or any(map(_errors, value.values())))


def produce(
    side: Side, name: str, records: bytes | None, *, partition: int = 0, acks: int = -1, **more: Any
) -> Data:
    """Return a maker of Produce requests with one partition."""

    def request(version: int) -> Data:
        data = [{"index": partition, "records": records}]
        id_ = side.ids.get(name, UNKNOWN_ID)
        return {
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [{"name": name, "topic_id": id_, "partition_data": data}],
            **more,
        }

    return request


def creating_topics(side: Side) -> None:
    """CreateTopics: each version, each error, and what is created when it is only validated."""
    ask = side.ask
    ask("create", "CreateTopics", lambda v: {"topics": [topic(side.name(f"made-{v}"), 2)]})
    ask("create again", "CreateTopics", lambda v: {"topics": [topic(side.name(f"made-{v}"), 2)]})
    ask(
        "create validated",
        "CreateTopics",
        lambda v: {"topics": [topic(side.name(f"not-{v}"), 3)], "validate_only": True},
    )
    ask("create by default", "CreateTopics", lambda v: {"topics": [topic(side.name(f"default-{v}"), -1, -1)]})
    configs = {"cleanup.policy": "compact", "retention.ms": "3600000"}
    ask(
        "create with configs",
        "CreateTopics",
        lambda v: {"topics": [topic(side.name(f"configs-{v}"), configs=configs)]},
    )
    twice = [topic(side.name("twice")), topic(side.name("twice"))]
    ask("create: one name twice", "CreateTopics", {"topics": twice})
    ask("create: nothing", "CreateTopics", {"topics": []})
    ask(
        "create: collision",
        "CreateTopics",
        {"topics": [topic(side.name("a.b")), topic(side.name("a_b"))]},
        versions=(7,),
    )
    ask(
        "create: collision later",
        "CreateTopics",
        {"topics": [topic(side.name("made_7").replace("-", "_"))]},
        versions=(7,),
    )


def refused_topics(side: Side) -> None:
    """CreateTopics with each thing that can be wrong with a topic."""
    ask = side.ask
    for case, entry in {
        "no partitions": topic(side.name("bad"), 0),
        "negative partitions": topic(side.name("bad"), -2),
        "no replicas": topic(side.name("bad"), 1, 0),
        "three replicas": topic(side.name("bad"), 1, 3),
        "unknown config": topic(side.name("bad"), configs={"no.such": "1"}),
        "bad config": topic(side.name("bad"), configs={"retention.ms": "soon"}),
        "null config": topic(side.name("bad"), configs={"retention.ms": None}),
        "space in name": topic(side.name("a b")),
        "empty name": topic(""),
        "dot": topic("."),
        "dots": topic(".."),
        "long name": topic(side.name("x" * 243)),
        "assigned": topic(
            side.name("assigned"), -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1]}]
        ),
        "assigned and counted": topic(
            side.name("bad"), 1, 1, assignments=[{"partition_index": 0, "broker_ids": [1]}]
        ),
        "assigned to an unknown broker": topic(
            side.name("bad"), -1, -1, assignments=[{"partition_index": 0, "broker_ids": [7]}]
        ),
        "assigned with a gap": topic(
            side.name("bad"), -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]
        ),
        "assigned twice": topic(
            side.name("bad"), -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1, 1]}]
        ),
    }.items():
        ask(f"create: {case}", "CreateTopics", {"topics": [entry]}, versions=(0, 4, 7))
        if case == "assigned":
            ask("delete assigned", "DeleteTopics", _delete(side, "assigned"), versions=(6,))


def deleting_topics(side: Side) -> None:
    """DeleteTopics by name and id, with errors."""
    ask = side.ask
    for version in side.versions("DeleteTopics"):
        make(side, f"gone-{version}")
    ask("delete", "DeleteTopics", lambda v: _delete(side, f"gone-{v}"))
    ask("delete again", "DeleteTopics", lambda v: _delete(side, f"gone-{v}"))
    by_id = make(side, "by-id")
    ask(
        "delete by id",
        "DeleteTopics",
        {"timeout_ms": 5000, "topics": [{"topic_id": side.ids[by_id]}]},
        versions=(6,),
    )
    ask(
        "delete by unknown id",
        "DeleteTopics",
        {"timeout_ms": 5000, "topics": [{"topic_id": UNKNOWN_ID}]},
        versions=(6,),
    )
    ask(
        "delete by no id",
        "DeleteTopics",
        {"timeout_ms": 5000, "topics": [{"topic_id": UUID(int=0)}]},
        versions=(6,),
    )
    both = make(side, "both")
    ask(
        "delete by id and name",
        "DeleteTopics",
        {"timeout_ms": 5000, "topics": [{"name": both, "topic_id": side.ids[both]}]},
        versions=(6,),
    )
    ask(
        "delete twice",
        "DeleteTopics",
        {"timeout_ms": 5000, "topics": [{"name": both}, {"name": both}], "topic_names": [both, both]},
    )
    ask(
        "delete a bad name",
        "DeleteTopics",
        {"timeout_ms": 5000, "topics": [{"name": "a b"}], "topic_names": ["a b"]},
    )


def growing_topics(side: Side) -> None:
    """CreatePartitions: each version and each error of it."""
    ask = side.ask
    for version in side.versions("CreatePartitions"):
        make(side, f"grow-{version}", 2)
    for case, count, more in (
        ("more", 4, {}),
        ("the same", 4, {}),
        ("fewer", 1, {}),
        ("none", 0, {}),
        ("validated", 9, {"validate_only": True}),
    ):
        ask(
            f"partitions: {case}",
            "CreatePartitions",
            lambda v, c=count, m=more: _grow(side, f"grow-{v}", c, **m),
        )
    ask("partitions: unknown topic", "CreatePartitions", _grow(side, "nowhere", 3))
    ask(
        "partitions: bad name",
        "CreatePartitions",
        {"timeout_ms": 5000, "topics": [{"name": "a b", "count": 3, "assignments": None}]},
    )
    topics = [{"name": side.name("grow-3"), "count": 5, "assignments": [{"broker_ids": [7]}]}]
    ask(
        "partitions: unknown broker",
        "CreatePartitions",
        {"timeout_ms": 5000, "topics": topics},
        versions=(3,),
    )
    topics[0]["assignments"] = [{"broker_ids": [1]}, {"broker_ids": [1]}]
    ask(
        "partitions: too many assignments",
        "CreatePartitions",
        {"timeout_ms": 5000, "topics": topics},
        versions=(3,),
    )
    topics[0]["assignments"] = [{"broker_ids": [1]}]
    ask("partitions: assigned", "CreatePartitions", {"timeout_ms": 5000, "topics": topics}, versions=(3,))
    again = _grow(side, "grow-3", 8)["topics"] * 2
    ask("partitions: one name twice", "CreatePartitions", {"timeout_ms": 5000, "topics": again})


def _delete(side: Side, name: str) -> Data:
    return {"topics": [{"name": side.name(name)}], "topic_names": [side.name(name)], "timeout_ms": 5000}


def _grow(side: Side, name: str, count: int, **more: Any) -> dict[str, Any]:
    return {
        "topics": [{"name": side.name(name), "count": count, "assignments": None}],
        "timeout_ms": 5000,
        **more,
    }


def metadata(side: Side) -> None:
    """Metadata and DescribeTopicPartitions: known, unknown and bad names and ids, and all that may be asked for."""
    ask = side.ask
    name = make(side, "meta", 3)
    id_ = side.ids[name]
    nothing = {"allow_auto_topic_creation": False}
    ask("metadata", "Metadata", {"topics": [{"name": name}]})
    ask(
        "metadata without creation",
        "Metadata",
        {"topics": [{"name": side.name("nowhere")}], **nothing},
        versions=range(4, 99),
    )
    ask("metadata of a bad name", "Metadata", {"topics": [{"name": side.name("a b")}], **nothing})
    ask("metadata of an empty name", "Metadata", {"topics": [{"name": ""}], **nothing})
    ask("metadata of nothing", "Metadata", {"topics": [], **nothing}, versions=range(1, 99))
    ask("metadata twice", "Metadata", {"topics": [{"name": name}, {"name": name}], **nothing})
    allowed = {"include_topic_authorized_operations": True}
    ask(
        "metadata with operations", "Metadata", {"topics": [{"name": name}], **allowed}, versions=range(8, 99)
    )
    ask("metadata by id", "Metadata", {"topics": [{"name": None, "topic_id": id_}]}, versions=range(10, 99))
    ask(
        "metadata by unknown id",
        "Metadata",
        {"topics": [{"name": None, "topic_id": UNKNOWN_ID}]},
        versions=range(10, 99),
    )
    ask(
        "metadata by id and name",
        "Metadata",
        {"topics": [{"name": name, "topic_id": id_}]},
        versions=range(10, 99),
    )
    created = [{"name": side.name("auto")}]
    ask("metadata with creation", "Metadata", {"topics": created}, versions=side.versions("Metadata")[-1:])
    api = "DescribeTopicPartitions"
    ask("partitions", api, {"topics": [{"name": name}]})
    ask("partitions, first page", api, {"topics": [{"name": name}], "response_partition_limit": 2})
    cursor = {"topic_name": name, "partition_index": 2}
    ask("partitions, second page", api, {"topics": [{"name": name}], "cursor": cursor})
    ask("partitions of an unknown topic", api, {"topics": [{"name": side.name("nowhere")}]})
    ask("partitions of a bad name", api, {"topics": [{"name": side.name("a b")}]})
    cursor = {"topic_name": name, "partition_index": -1}
    ask("partitions, negative cursor", api, {"topics": [{"name": name}], "cursor": cursor})
    elect = {
        "topic_partitions": [
            {"topic": name, "partitions": [0, 7]},
            {"topic": side.name("nowhere"), "partitions": [0]},
        ]
    }
    ask("elect preferred", "ElectLeaders", elect)
    ask("elect unclean", "ElectLeaders", {**elect, "election_type": 1}, versions=range(1, 99))
    ask("elect unknown", "ElectLeaders", {**elect, "election_type": 9}, versions=(2,))


def _resource(name: str, *keys: str, kind: int = TOPIC) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}


def configs(side: Side) -> None:
    """DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: all settings of a topic, and each error."""
    ask = side.ask
    name = make(side, "configured", retention_ms="7200000", cleanup_policy="compact,delete")
    describe = "DescribeConfigs"
    more = {"include_synonyms": True, "include_documentation": True}
    ask("describe", describe, {"resources": [_resource(name)]})
    ask("describe with all", describe, {"resources": [_resource(name)], **more})
    ask("describe some", describe, {"resources": [_resource(name, "retention.ms", "no.such")]})
    ask("describe unknown topic", describe, {"resources": [_resource(side.name("nowhere"))]})
    ask("describe bad name", describe, {"resources": [_resource(side.name("a b"))]})
    ask("describe empty name", describe, {"resources": [_resource("")]})
    keys = ("log.retention.hours", "message.max.bytes", "auto.create.topics.enable", "num.partitions")
    ask("describe broker", describe, {"resources": [_resource("1", *keys, kind=BROKER)], **more})
    ask("describe all brokers", describe, {"resources": [_resource("", kind=BROKER)]}, versions=(4,))
    ask("describe unknown broker", describe, {"resources": [_resource("7", kind=BROKER)]})
    ask("describe broker x", describe, {"resources": [_resource("x", kind=BROKER)]})
    for kind in (0, 8, 16, 32, 99):
        ask(
            f"describe type {kind}",
            describe,
            {"resources": [_resource("1", "no.such", kind=kind)]},
            versions=(1, 4),
        )
    twice = [_resource(name, "retention.ms")] * 2
    ask("describe one twice", describe, {"resources": twice}, versions=(4,))
    for case, resource, changes in _changes(side, name):
        one = {"resource_type": TOPIC, "resource_name": resource}
        plain = [{"name": key, "value": value} for key, _, value in changes]
        small = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
        ask(f"alter {case}", "IncrementalAlterConfigs", {"resources": [{**one, "configs": small}]})
        settle(side)
        ask(f"after {case}", describe, {"resources": [_resource(name)]}, versions=(4,))
        if all(how == 0 for _, how, _ in changes):
            ask(f"alter whole {case}", "AlterConfigs", {"resources": [{**one, "configs": plain}]})
            settle(side)
            ask(f"after whole {case}", describe, {"resources": [_resource(name)]}, versions=(4,))
    good = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configs": [{"name": "retention.ms", "value": "5"}],
    }
    for api in ("AlterConfigs", "IncrementalAlterConfigs"):
        ask(f"{api} validated", api, {"resources": [good], "validate_only": True})
        if api == "IncrementalAlterConfigs":  # Kafka never answers AlterConfigs that names a resource twice
            ask(f"{api} one twice", api, {"resources": [good, good]}, versions=(1,))
        ask(
            f"{api} unknown broker",
            api,
            {"resources": [{**good, "resource_type": BROKER, "resource_name": "7"}]},
        )
        ask(f"{api} type 99", api, {"resources": [{**good, "resource_type": 99}]})
        ask(f"{api} nothing", api, {"resources": []})
    settle(side)
    ask("after all", describe, {"resources": [_resource(name)]}, versions=(4,))
    ask("list config resources", "ListConfigResources", {"resource_types": [16]})


def _changes(side: Side, name: str) -> list[tuple[str, str, list[tuple[str, int, str | None]]]]:
    set_, delete, append, subtract = range(4)
    return [
        ("set", name, [("retention.ms", set_, "3600000")]),
        ("two", name, [("retention.ms", set_, "60000"), ("max.message.bytes", set_, "2000")]),
        ("delete", name, [("retention.ms", delete, None)]),
        ("append", name, [("cleanup.policy", append, "compact")]),
        ("append again", name, [("cleanup.policy", append, "delete")]),
        ("subtract", name, [("cleanup.policy", subtract, "delete")]),
        ("append to a number", name, [("retention.ms", append, "5")]),
        ("null", name, [("retention.ms", set_, None)]),
        ("unknown", name, [("no.such", set_, "5")]),
        ("bad value", name, [("retention.ms", set_, "soon")]),
        ("bad list", name, [("cleanup.policy", set_, "shred")]),
        ("below its limit", name, [("segment.bytes", set_, "1")]),
        ("key twice", name, [("retention.ms", set_, "5"), ("retention.ms", set_, "6")]),
        ("empty key", name, [("", set_, "5")]),
        ("unknown operation", name, [("retention.ms", 9, "5")]),
        ("unknown topic", side.name("nowhere"), [("retention.ms", set_, "5")]),
        ("empty topic", "", [("retention.ms", set_, "5")]),
    ]


def producing(side: Side) -> None:
    """Produce: each version and each error of it."""
    ask = side.ask
    name = make(side, "produced", 2)
    small = make(side, "small", max_message_bytes="200")
    compacted = make(side, "compacted", cleanup_policy="compact")
    stamped = make(side, "stamped", message_timestamp_type="LogAppendTime")
    good = batch(b"one", b"two")
    cut, wrong = good[:-3], bytearray(good)
    wrong[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    versions = side.versions("Produce")
    few = {*versions[:1], 3, 7, 8, 9, *versions[-1:]}
    ask("produce", "Produce", produce(side, name, good))
    ask("produce acks 1", "Produce", produce(side, name, good, acks=1))
    ask("produce gzip", "Produce", produce(side, name, batch(b"one" * 50, codec=1)), versions=few)
    for case, request in {  # Kafka never answers a Produce whose records are null
        "acks 2": produce(side, name, good, acks=2),
        "acks -2": produce(side, name, good, acks=-2),
        "wrong crc": produce(side, name, bytes(wrong)),
        "cut": produce(side, name, cut),
        "magic 1": produce(side, name, bytes(old_magic)),
        "no records": produce(side, name, b""),
        "two batches": produce(side, name, good * 2),
        "nonsense": produce(side, name, b"nonsense" * 20),
        "unknown topic": produce(side, side.name("nowhere-2"), good),
        "unknown partition": produce(side, name, good, partition=7),
        "negative partition": produce(side, name, good, partition=-1),
        "bad topic": produce(side, side.name("a b"), good),
        "too large": produce(side, small, batch(b"x" * 300)),
        "no key": produce(side, compacted, good),
        "log append time": produce(side, stamped, good),
        "control": produce(
            side,
            name,
            batch(b"\0\0\0\0\0\0", producer_id=99, producer_epoch=0, base_sequence=0, control=True),
        ),
        "transactional": produce(
            side, name, batch(b"x", producer_id=99, producer_epoch=0, base_sequence=0, transactional=True)
        ),
        "zstd": produce(side, name, batch(b"one" * 50, codec=4)),
        "nothing": {"acks": -1, "timeout_ms": 5000, "topic_data": []},
    }.items():
        ask(f"produce: {case}", "Produce", request, versions=few)
    side.ask("produce end", "ListOffsets", offsets_of(name, -1), versions=(7,))


def idempotence(side: Side) -> None:
    """InitProducerId, and Produce with sequences in and out of order, old epochs and unknown producers."""
    ask = side.ask
    name = make(side, "sequences")
    wait_for(side, "InitProducerId", 4, {"transaction_timeout_ms": 60000})
    for version in side.versions("InitProducerId"):
        made = ask(
            "init",
            "InitProducerId",
            {"transactional_id": None, "transaction_timeout_ms": 60000},
            versions=(version,),
        )
    ask(
        "init: id of nothing",
        "InitProducerId",
        {"producer_id": 999_999, "producer_epoch": 3},
        versions=range(3, 99),
    )
    ask(
        "init: again",
        "InitProducerId",
        {"producer_id": made["producer_id"], "producer_epoch": 0},
        versions=range(3, 99),
    )
    ask(
        "init: epoch alone", "InitProducerId", {"producer_id": -1, "producer_epoch": 3}, versions=range(3, 99)
    )
    id_, newest = made["producer_id"], side.versions("Produce")[-1:]
    for case, epoch, sequence, values in (
        ("first", 0, 0, (b"a",)),
        ("second", 0, 1, (b"b", b"c")),
        ("second again", 0, 1, (b"b", b"c")),
        ("second with fewer records", 0, 1, (b"b",)),
        ("gap", 0, 9, (b"d",)),
        ("before", 0, 0, (b"d", b"e")),
        ("next epoch, not at 0", 1, 3, (b"d",)),
        ("next epoch", 1, 0, (b"d",)),
        ("old epoch", 0, 3, (b"e",)),
        ("negative epoch", -1, 4, (b"e",)),
        ("negative sequence", 1, -1, (b"e",)),
    ):
        records = batch(*values, producer_id=id_, producer_epoch=epoch, base_sequence=sequence)
        ask(f"sequence: {case}", "Produce", produce(side, name, records), versions=newest)
    strange = batch(b"x", producer_id=id_ + 5, producer_epoch=0, base_sequence=7)
    ask("sequence: unknown producer, not at 0", "Produce", produce(side, name, strange), versions=newest)
    two = batch(b"x", producer_id=id_, producer_epoch=1, base_sequence=1)
    ask("sequence: two batches", "Produce", produce(side, name, two + two), versions=newest)
    producers = {
        "topics": [
            {"name": name, "partition_indexes": [0, 7]},
            {"name": side.name("nowhere"), "partition_indexes": [0]},
        ]
    }
    ask("producers", "DescribeProducers", producers)


def fetching(side: Side) -> None:
    """Fetch: offsets in and out of range, limits, epochs, sessions, ids; each version."""
    ask = side.ask
    name = make(side, "fetched", 2)
    for i in range(3):
        silently(side, "Produce", 9, produce(side, name, batch(b"%d" % i, b"second")))
    few = {*side.versions("Fetch")[:1], 7, 11, 12, 13, *side.versions("Fetch")[-1:]}
    ask("fetch", "Fetch", _fetch(side, name, 0))
    ask("fetch from the middle", "Fetch", _fetch(side, name, 3))
    for case, request in {
        "end": _fetch(side, name, 6),
        "beyond": _fetch(side, name, 7),
        "negative": _fetch(side, name, -1),
        "earlier": _fetch(side, name, -2),
        "unknown partition": _fetch(side, name, 0, partition=7),
        "unknown topic": _fetch(side, side.name("nowhere"), 0),
        "one byte": _fetch(side, name, 0, partition_max_bytes=1),
        "one byte in all": _fetch(side, name, 2, top={"max_bytes": 1}),
        "no bytes": _fetch(side, name, 0, partition_max_bytes=0),
        "epoch 0": _fetch(side, name, 0, current_leader_epoch=0),
        "epoch 9": _fetch(side, name, 0, current_leader_epoch=9),
        "last epoch 0": _fetch(side, name, 0, last_fetched_epoch=0),
        "last epoch 9": _fetch(side, name, 0, last_fetched_epoch=9),
        "committed": _fetch(side, name, 0, top={"isolation_level": 1}),
        "isolation 9": _fetch(side, name, 0, top={"isolation_level": 9}),
        "unknown session": _fetch(side, name, 0, top={"session_id": 77, "session_epoch": 1}),
        "session epoch without id": _fetch(side, name, 0, top={"session_id": 0, "session_epoch": 5}),
        "another cluster": _fetch(side, name, 0, top={"cluster_id": "another"}),
        "rack": _fetch(side, name, 0, top={"rack_id": "r1"}),
        "nothing": {"max_wait_ms": 0, "topics": []},
    }.items():
        ask(f"fetch: {case}", "Fetch", request, versions=few)
    _session(side, name)


def _session(side: Side, name: str) -> None:
    for version in {7, *side.versions("Fetch")[-1:]} & {*side.versions("Fetch")}:
        one = (version,)
        opened = side.ask(
            "session opens", "Fetch", _fetch(side, name, 6, top={"session_epoch": 0}), versions=one
        )
        session = {"session_id": opened["session_id"], "session_epoch": 1}
        side.ask("session continues", "Fetch", {"max_wait_ms": 0, **session, "topics": []}, versions=one)
        side.ask("session, old epoch", "Fetch", {"max_wait_ms": 0, **session, "topics": []}, versions=one)
        session["session_epoch"] = 2
        side.ask("session, offset moves", "Fetch", _fetch(side, name, 4, top=session), versions=one)
        session["session_epoch"] = 3
        forget = [{"topic": name, "topic_id": side.ids[name], "partitions": [0]}]
        forgets = {"max_wait_ms": 0, **session, "topics": [], "forgotten_topics_data": forget}
        side.ask("session forgets", "Fetch", forgets, versions=one)
        session["session_epoch"] = -1
        side.ask("session ends", "Fetch", _fetch(side, name, 6, top=session), versions=one)


def _fetch(
    side: Side, name: str, offset: int, *, partition: int = 0, top: Data | None = None, **more: Any
) -> Callable[[int], Data]:
    def request(version: int) -> Data:
        one = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 100_000, **more}
        id_ = side.ids.get(name, UNKNOWN_ID)
        return {
            "max_wait_ms": 0,
            "topics": [{"topic": name, "topic_id": id_, "partitions": [one]}],
            **(top or {}),
        }

    return request


def offsets(side: Side) -> None:
    """ListOffsets with all specials, OffsetForLeaderEpoch, DeleteRecords."""
    ask = side.ask
    name = make(side, "listed", 2)
    silently(side, "Produce", 9, produce(side, name, batch(b"a", b"b", b"c")))
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, NOW, NOW + 1, NOW + 2000, NOW + 5000):
        ask(
            f"offset at {timestamp - NOW if timestamp > 0 else timestamp}",
            "ListOffsets",
            offsets_of(name, timestamp),
        )
    ask("offset of an empty partition", "ListOffsets", offsets_of(name, -3, partition=1))
    ask("offset at a time, empty partition", "ListOffsets", offsets_of(name, NOW, partition=1))
    ask("offset of an unknown partition", "ListOffsets", offsets_of(name, -1, partition=7))
    ask("offset of an unknown topic", "ListOffsets", offsets_of(side.name("nowhere"), -1))
    ask(
        "offset, committed",
        "ListOffsets",
        {**offsets_of(name, -1), "isolation_level": 1},
        versions=range(2, 99),
    )
    ask(
        "offset, isolation 9",
        "ListOffsets",
        {**offsets_of(name, -1), "isolation_level": 9},
        versions=range(2, 99),
    )
    ask("offset, debugging replica", "ListOffsets", {**offsets_of(name, -1), "replica_id": -2})
    for epoch in (0, 9):
        ask(
            f"offset, epoch {epoch}",
            "ListOffsets",
            offsets_of(name, -1, current_leader_epoch=epoch),
            versions=range(4, 99),
        )
    twice = offsets_of(name, -1)["topics"][0]
    twice = {**twice, "partitions": twice["partitions"] * 2}
    ask("offset, partition twice", "ListOffsets", {"replica_id": -1, "topics": [twice]})
    for current in (-1, 0, 9):
        for asked in (-1, 0, 1, 9):
            one = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
            topics = [{"topic": name, "partitions": [one]}]
            ask(f"epoch {asked} at {current}", "OffsetForLeaderEpoch", {"replica_id": -1, "topics": topics})
    for case, topic_, partition in (("partition", name, 7), ("topic", side.name("nowhere"), 0)):
        topics = [{"topic": topic_, "partitions": [{"partition": partition, "leader_epoch": 0}]}]
        ask(f"epoch, unknown {case}", "OffsetForLeaderEpoch", {"replica_id": -1, "topics": topics})
    for case, topic_, partition, offset in (
        ("nothing", name, 0, 0), ("one", name, 0, 1), ("backwards", name, 0, 0), ("beyond", name, 0, 9),
        ("negative", name, 0, -2), ("all", name, 0, -1), ("unknown partition", name, 7, 0),
        ("unknown topic", side.name("nowhere"), 0, 0), ("empty partition", name, 1, -1),
    ):  # fmt: skip
        topics = [{"name": topic_, "partitions": [{"partition_index": partition, "offset": offset}]}]
        ask(f"delete records: {case}", "DeleteRecords", {"topics": topics, "timeout_ms": 5000})
    compacted = make(side, "not-deleted", cleanup_policy="compact")
    topics = [{"name": compacted, "partitions": [{"partition_index": 0, "offset": 0}]}]
    ask("delete records: compacted", "DeleteRecords", {"topics": topics, "timeout_ms": 5000})
    ask("offset after deletion", "ListOffsets", offsets_of(name, -2))
    ask("fetch after deletion", "Fetch", _fetch(side, name, 0))


def offsets_of(name: str, timestamp: int, *, partition: int = 0, **more: Any) -> dict[str, Any]:
    one = {"partition_index": partition, "timestamp": timestamp, **more}
    return {"replica_id": -1, "topics": [{"name": name, "partitions": [one]}]}


SCRIPTS: tuple[Callable[[Side], None], ...] = (
    creating_topics, refused_topics, deleting_topics, growing_topics, metadata, configs, producing, idempotence,
    fetching, offsets,
)  # fmt: skip
