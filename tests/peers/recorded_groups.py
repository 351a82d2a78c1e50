"""The new group protocols of a real Kafka: consumer groups (KIP-848) and share groups (KIP-932)."""

from __future__ import annotations

import time
from typing import Any

from core.protocol.consumer_protocol import Subscription, encode_subscription
from tests.peers.record import Recorder
from tests.peers.scripts import UNKNOWN_ID, batch

HEARTBEAT, SHARE = "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"
ACCEPT, RELEASE, REJECT, GAP = 1, 2, 3, 0


def member_id(number: int) -> str:
    """Return an id as clients make them: 16 bytes in base64 without padding. All zeros mean no member."""
    return chr(ord("B") + number) + "AAAAAAAAAAAAAAAAAAAAA"


def _wake(to: Recorder, kinds: tuple[int, ...] = (0,)) -> None:
    for kind in kinds:
        key = f"first:{UNKNOWN_ID}:0" if kind == 2 else "first"
        to.settled(
            "", "FindCoordinator", {"key_type": kind, "coordinator_keys": [key]}, versions=[6], keep=False
        )
    to.settled("", "DescribeGroups", {"groups": ["first"]}, versions=[5], keep=False)


def _write(to: Recorder, name: str, *values: bytes, partition: int = 0) -> None:
    data = [{"name": name, "partition_data": [{"index": partition, "records": batch(*values)}]}]
    to.ask("", "Produce", {"acks": -1, "timeout_ms": 5000, "topic_data": data}, versions=[9], keep=False)


# --- consumer groups ---------------------------------------------------------------------------------------


def consumer_groups(to: Recorder) -> None:
    """Record members that join, get partitions, hand them over and leave, and each error."""
    ids = {name: to.topic(name, 4) for name in ("first", "second")}
    _wake(to)
    _one_member(to, ids)
    _two_members(to, ids)
    _static(to, ids)
    _patterns(to)
    _wrong_heartbeats(to)
    _offsets_of_members(to, ids)
    _two_protocols(to)


def joins(group: str, member: str, *topics: str, **more: Any) -> dict[str, Any]:
    """Return the first heartbeat of a member."""
    return {
        "group_id": group, "member_id": member, "member_epoch": 0, "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": list(topics), "topic_partitions": [], **more,
    }  # fmt: skip


def stays(group: str, member: str, epoch: int, owned: Any = None, **more: Any) -> dict[str, Any]:
    """Return a later heartbeat; `owned` is the assignment that the member has taken over."""
    return {"group_id": group, "member_id": member, "member_epoch": epoch, "topic_partitions": owned, **more}


def _owned(answer: dict[str, Any]) -> Any:
    return (answer["assignment"] or {"topic_partitions": []})["topic_partitions"]


def _one_member(to: Recorder, ids: dict[str, Any]) -> None:
    for version in to.versions(HEARTBEAT):
        group = f"one-{version}"
        member = "" if version == 0 else member_id(0)
        joined = to.ask("join", HEARTBEAT, joins(group, member, "first"), versions=[version])
        member = joined["member_id"]
        to.ask(
            "own what was assigned", HEARTBEAT, stays(group, member, 1, _owned(joined)), versions=[version]
        )
        to.ask("nothing new", HEARTBEAT, stays(group, member, 1), versions=[version])
        topics = {"subscribed_topic_names": ["first", "second"]}
        more = to.ask("subscribe to more", HEARTBEAT, stays(group, member, 1, **topics), versions=[version])
        owned = stays(group, member, more["member_epoch"], _owned(more))
        to.ask("own more", HEARTBEAT, owned, versions=[version])
        asked = {"group_ids": [group], "include_authorized_operations": True}
        to.ask("describe", "ConsumerGroupDescribe", asked, versions=to.versions("ConsumerGroupDescribe"))
        to.ask("leave", HEARTBEAT, stays(group, member, -1), versions=[version])
        to.ask("describe empty", "ConsumerGroupDescribe", asked)
        to.ask("join again", HEARTBEAT, joins(group, member, "first"), versions=[version])
        to.ask("leave again", HEARTBEAT, stays(group, member, -1), versions=[version])
    to.ask("describe missing and empty name", "ConsumerGroupDescribe", {"group_ids": ["no-group", ""]})
    to.ask("unknown topic", HEARTBEAT, joins("unknown", member_id(1), "nowhere"))
    to.ask("no topics", HEARTBEAT, joins("nothing", member_id(1)))


def _two_members(to: Recorder, ids: dict[str, Any]) -> None:
    """The second member waits until the first one has given partitions back."""
    group, a, b = "two", member_id(0), member_id(1)
    first = to.ask("two: first joins", HEARTBEAT, joins(group, a, "first", server_assignor="range"))
    to.ask("two: first owns all", HEARTBEAT, stays(group, a, 1, _owned(first)))
    to.ask("two: second joins", HEARTBEAT, joins(group, b, "first"))
    to.ask("two: second waits", HEARTBEAT, stays(group, b, 2))
    less = to.ask("two: first is to give back", HEARTBEAT, stays(group, a, 1, _owned(first)))
    asked = {"group_ids": [group]}
    to.ask("two: describe, reconciling", "ConsumerGroupDescribe", asked)
    to.ask("two: second still waits", HEARTBEAT, stays(group, b, 2, []))
    to.ask("two: first gave back", HEARTBEAT, stays(group, a, less["member_epoch"], _owned(less)))
    second = to.ask("two: second gets its part", HEARTBEAT, stays(group, b, 2, []))
    to.ask("two: second owns it", HEARTBEAT, stays(group, b, second["member_epoch"], _owned(second)))
    to.ask("two: describe, stable", "ConsumerGroupDescribe", asked)
    to.ask("two: first leaves", HEARTBEAT, stays(group, a, -1))
    rest = to.ask("two: second gets all", HEARTBEAT, stays(group, b, second["member_epoch"], _owned(second)))
    to.ask("two: second owns all", HEARTBEAT, stays(group, b, rest["member_epoch"], _owned(rest)))
    to.ask("two: delete the group in use", "DeleteGroups", {"groups_names": [group]})
    to.ask("two: second leaves", HEARTBEAT, stays(group, b, -1))
    for types, states in ((["consumer"], []), ([], ["empty"]), (["classic"], ["Stable"])):
        to.ask("list", "ListGroups", {"types_filter": types, "states_filter": states})
    to.ask("delete the group", "DeleteGroups", {"groups_names": [group]})


def _static(to: Recorder, ids: dict[str, Any]) -> None:
    group, a, b = "static", member_id(2), member_id(3)
    static = {"instance_id": "one"}
    first = to.ask("static: join", HEARTBEAT, joins(group, a, "first", **static))
    to.ask("static: own", HEARTBEAT, stays(group, a, 1, _owned(first), **static))
    to.ask("static: instance in use", HEARTBEAT, joins(group, b, "first", **static))
    to.ask("static: another instance", HEARTBEAT, stays(group, a, 1, None, instance_id="two"))
    to.ask("static: leave for a while", HEARTBEAT, stays(group, a, -2, **static))
    again = to.ask("static: another member comes back", HEARTBEAT, joins(group, b, "first", **static))
    to.ask("static: the old member", HEARTBEAT, stays(group, a, 1, **static))
    to.ask("static: describe", "ConsumerGroupDescribe", {"group_ids": [group]})
    to.ask("static: own again", HEARTBEAT, stays(group, b, again["member_epoch"], _owned(again), **static))
    to.ask("static: leave", HEARTBEAT, stays(group, b, -1, **static))


def _patterns(to: Recorder) -> None:
    """A subscription by pattern, which version 1 has, and whose topics are looked up after the answer."""
    member = member_id(4)
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "fi.*"}
    joined = to.ask("regex: join", HEARTBEAT, joins("regex", member, **regex))
    deadline = time.monotonic() + 10
    epoch = joined["member_epoch"]
    while time.monotonic() < deadline:
        seen = to.ask("regex: assigned", HEARTBEAT, stays("regex", member, epoch), keep=False)
        epoch = seen["member_epoch"]
        if _owned(seen):
            to.keep(to.peer().answers[-1])
            break
        time.sleep(0.05)
    to.ask("regex: own", HEARTBEAT, stays("regex", member, epoch, _owned(seen)))
    to.ask("regex: describe", "ConsumerGroupDescribe", {"group_ids": ["regex"]})
    to.ask("regex: leave", HEARTBEAT, stays("regex", member, -1))
    bad = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    to.ask("regex: not a pattern", HEARTBEAT, joins("regex", member, **bad))


def _wrong_heartbeats(to: Recorder) -> None:
    group, member = "wrong", member_id(5)
    to.ask("wrong: join", HEARTBEAT, joins(group, member, "first"))
    for case, request in {
        "empty group": joins("", member, "first"),
        "empty member": joins(group, "", "first"),
        "no rebalance timeout": joins(group, member_id(6), "first", rebalance_timeout_ms=-1),
        "no topics at the join": joins(group, member_id(6), subscribed_topic_names=None),
        "no partitions at the join": joins(group, member_id(6), "first", topic_partitions=None),
        "partitions at the join": joins(
            group, member_id(6), "first", topic_partitions=[{"topic_id": UNKNOWN_ID, "partitions": [0]}]
        ),
        "unknown assignor": joins(group, member_id(6), "first", server_assignor="best"),
        "empty instance": joins(group, member_id(6), "first", instance_id=""),
        "empty rack": joins(group, member_id(6), "first", rack_id=""),
        "unknown member": stays(group, member_id(7), 1),
        "unknown member leaves": stays(group, member_id(7), -1),
        "unknown group": stays("no-group", member, 1),
        "epoch too high": stays(group, member, 9),
        "epoch -3": stays(group, member, -3),
        "old epoch, nothing owned": stays(group, member, 0, []),
        "leave for a while without instance": stays(group, member, -2),
    }.items():
        to.ask(f"wrong: {case}", HEARTBEAT, request)
    to.ask("wrong: a share member", SHARE, _shares(group, member_id(8), "first"))
    to.ask("wrong: leave", HEARTBEAT, stays(group, member, -1))


def _offsets_of_members(to: Recorder, ids: dict[str, Any]) -> None:
    """OffsetCommit and OffsetFetch with member epochs."""
    group, member = "offsets", member_id(9)
    to.ask("offsets: join", HEARTBEAT, joins(group, member, "first"))
    for case, who, epoch in (
        ("right epoch", member, 1), ("old epoch", member, 0), ("epoch too high", member, 5),
        ("unknown member", member_id(10), 1), ("no member", "", -1),
    ):  # fmt: skip
        positions = [{"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": 0}]
        topics = [{"name": "first", "topic_id": ids["first"], "partitions": positions}]
        one = {"group_id": group, "member_id": who, "generation_id_or_member_epoch": epoch, "topics": topics}
        to.ask(f"offsets: commit, {case}", "OffsetCommit", one, versions=[8, 9])
        wanted = [{"name": "first", "topic_id": ids["first"], "partition_indexes": [0]}]
        asked = {"group_id": group, "member_id": who or None, "member_epoch": epoch, "topics": wanted}
        to.ask(f"offsets: fetch, {case}", "OffsetFetch", {"groups": [asked]}, versions=[9])
    to.ask("offsets: leave", HEARTBEAT, stays(group, member, -1))


def _two_protocols(to: Recorder) -> None:
    """A group moves from the classic protocol to the new one and back (KIP-848's migration)."""
    blob = encode_subscription(Subscription(topics=["first"]), 3)
    classic = {
        "group_id": "both", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": blob}],
    }  # fmt: skip
    to.ask("both: consumer joins", HEARTBEAT, joins("both", member_id(11), "first"))
    refused = to.ask("both: classic joins beside", "JoinGroup", classic, versions=[9])
    classic["member_id"] = refused["member_id"]
    to.ask("both: classic joins with its id", "JoinGroup", classic, versions=[9])
    to.ask("both: describe as classic", "DescribeGroups", {"groups": ["both"]}, versions=[5, 6])
    beat = {"group_id": "both", "member_id": member_id(11), "generation_id": 1}
    to.ask("both: classic heartbeat of a consumer", "Heartbeat", beat)
    sync = {**beat, "protocol_type": "consumer", "protocol_name": "range"}
    to.ask("both: classic sync of a consumer", "SyncGroup", sync)
    to.ask(
        "both: leave as classic",
        "LeaveGroup",
        {"group_id": "both", "members": [{"member_id": member_id(11)}]},
    )
    to.ask("both: consumer after that", HEARTBEAT, stays("both", member_id(11), 1))


# --- share groups ------------------------------------------------------------------------------------------


def share_groups(to: Recorder) -> None:
    """Record members of share groups: heartbeats, fetches, acknowledgements, deliveries again, and each error."""
    topic_id = to.topic("jobs", 2)
    _wake(to, (0, 2))
    config = {"resource_type": 32, "resource_name": "workers"}
    early = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    to.ask("read from the start", "IncrementalAlterConfigs", {"resources": [{**config, "configs": early}]})
    to.ask(
        "describe the group's configs",
        "DescribeConfigs",
        {"resources": [{**config, "configuration_keys": None}]},
    )
    _write(to, "jobs", b"j0", b"j1", b"j2", b"j3")
    _write(to, "jobs", b"j4", b"j5")
    _share_members(to)
    _share_fetches(to, topic_id)
    _share_sessions(to, topic_id)
    _share_errors(to, topic_id)


def _shares(group: str, member: str, *topics: str, epoch: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "subscribed_topic_names": list(topics),
        **more,
    }


def _share_members(to: Recorder) -> None:
    group, a, b = "workers", member_id(0), member_id(1)
    to.ask("first joins", SHARE, _shares(group, a, "jobs"))
    to.ask("second joins", SHARE, _shares(group, b, "jobs"))
    nothing = {"subscribed_topic_names": None}
    deadline = time.monotonic() + 10
    epoch = 1
    while time.monotonic() < deadline:  # share partitions are set up before they are assigned
        seen = to.ask("first is assigned", SHARE, _shares(group, a, epoch=epoch, **nothing), keep=False)
        epoch = seen["member_epoch"]
        if _owned(seen):
            to.keep(to.peer().answers[-1])
            break
        time.sleep(0.05)
    to.ask("nothing new", SHARE, _shares(group, a, epoch=epoch, **nothing))
    to.ask("the epoch before", SHARE, _shares(group, a, epoch=epoch - 1, **nothing))
    asked = {"group_ids": [group, "no-group", ""], "include_authorized_operations": True}
    to.ask("describe", "ShareGroupDescribe", asked)
    to.ask("list", "ListGroups", {"types_filter": ["share"]})
    to.ask("second leaves", SHARE, _shares(group, b, epoch=-1, **nothing))
    to.ask("empty group", SHARE, _shares("", a, "jobs"))
    to.ask("empty member", SHARE, _shares(group, "", "jobs"))
    to.ask("empty rack", SHARE, _shares(group, a, "jobs", rack_id=""))
    to.ask("no topics at the join", SHARE, _shares(group, member_id(3), **nothing))
    to.ask("unknown member", SHARE, _shares(group, member_id(3), epoch=1, **nothing))
    to.ask("unknown member leaves", SHARE, _shares(group, member_id(3), epoch=-1, **nothing))
    to.ask("epoch too high", SHARE, _shares(group, a, epoch=9, **nothing))
    to.ask("epoch -2", SHARE, _shares(group, a, epoch=-2, **nothing))
    to.ask("unknown group", SHARE, _shares("no-group", a, epoch=1, **nothing))
    to.ask("a consumer member", HEARTBEAT, joins(group, member_id(4), "jobs"))
    to.ask("delete the group in use", "DeleteGroups", {"groups_names": [group]})


def _share_fetch(
    topic_id: Any,
    epoch: int,
    *batches: tuple[int, int, list[int]],
    member: str = "",
    partition: int = 0,
    **more: Any,
) -> dict[str, Any]:
    acknowledged = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        for first, last, types in batches
    ]
    one = {"partition_index": partition, "acknowledgement_batches": acknowledged}
    return {
        "group_id": "workers", "member_id": member or member_id(0), "share_session_epoch": epoch, "max_wait_ms": 500,
        "min_bytes": 1, "max_records": 100, "batch_size": 100,
        "topics": [{"topic_id": topic_id, "partitions": [one]}], **more,
    }  # fmt: skip


def _acknowledge(
    topic_id: Any, epoch: int, *batches: tuple[int, int, list[int]], **more: Any
) -> dict[str, Any]:
    fetch = _share_fetch(topic_id, epoch, *batches, **more)
    return {name: fetch[name] for name in ("group_id", "member_id", "share_session_epoch", "topics")}


def _share_fetches(to: Recorder, topic_id: Any) -> None:
    """One member fetches, acknowledges in all ways, and gets what it released once more."""
    epoch = 0
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:  # the share partition is set up at the first fetch
        read = to.ask("fetch: all", "ShareFetch", _share_fetch(topic_id, epoch), keep=False)
        epoch += 1
        if read["responses"] and read["responses"][0]["partitions"][0]["acquired_records"]:
            to.keep(to.peer().answers[-1])
            break
    nothing: dict[str, Any] = {"topics": [], "max_wait_ms": 0}
    to.ask("fetch: nothing is left", "ShareFetch", _share_fetch(topic_id, epoch, **nothing))
    for case, *batches in (
        ("accept one", (0, 0, [ACCEPT])),
        ("release one", (1, 1, [RELEASE])),
        ("reject one", (2, 2, [REJECT])),
        ("one twice", (0, 0, [ACCEPT])),
        ("not acquired", (90, 91, [ACCEPT])),
        ("unknown type", (3, 3, [9])),
        ("backwards", (4, 3, [ACCEPT])),
        ("types that do not fit", (3, 5, [ACCEPT, RELEASE])),
        ("no types", (3, 3, [])),
    ):
        epoch += 1
        to.ask(f"acknowledge: {case}", "ShareAcknowledge", _acknowledge(topic_id, epoch, *batches))
    epoch += 1
    to.ask("fetch: released again", "ShareFetch", _share_fetch(topic_id, epoch))
    epoch += 1
    mixed = _share_fetch(topic_id, epoch, (1, 1, [RELEASE]), (3, 5, [ACCEPT, GAP, REJECT]))
    to.ask("fetch: with acknowledgements", "ShareFetch", mixed)
    epoch += 1
    to.ask("session closes", "ShareFetch", _share_fetch(topic_id, -1, max_wait_ms=0))


def _share_sessions(to: Recorder, topic_id: Any) -> None:
    """Two members share a partition; the other gets what one of them holds when its session ends."""
    a, b = member_id(0), member_id(5)
    to.ask("third joins", SHARE, _shares("workers", b, "jobs"))
    one = {"max_records": 1, "batch_size": 1}
    to.ask("two: first opens and takes", "ShareFetch", _share_fetch(topic_id, 0, member=a, **one))
    _write(to, "jobs", b"k0")
    _write(to, "jobs", b"k1")
    to.ask(
        "two: second opens and takes", "ShareFetch", _share_fetch(topic_id, 0, member=b, **one), user="second"
    )
    to.ask(
        "two: first acknowledges what the second has",
        "ShareAcknowledge",
        _acknowledge(topic_id, 1, (6, 6, [ACCEPT])),
    )
    to.ask("two: first goes on", "ShareFetch", _share_fetch(topic_id, 2, member=a, max_wait_ms=0))
    to.ask("two: first closes", "ShareAcknowledge", _acknowledge(topic_id, -1))
    to.ask("two: second gets the rest", "ShareFetch", _share_fetch(topic_id, 1, member=b), user="second")
    forget = {
        "forgotten_topics_data": [{"topic_id": topic_id, "partitions": [0]}],
        "topics": [],
        "max_wait_ms": 0,
    }
    to.ask(
        "two: second forgets the partition",
        "ShareFetch",
        _share_fetch(topic_id, 2, member=b, **forget),
        user="second",
    )
    to.ask(
        "two: second closes",
        "ShareFetch",
        _share_fetch(topic_id, -1, member=b, max_wait_ms=0, topics=[]),
        user="second",
    )


def _share_errors(to: Recorder, topic_id: Any) -> None:
    quick = {"max_wait_ms": 0}
    for case, request in {
        "unknown session": _share_fetch(topic_id, 5, **quick),
        "empty group": _share_fetch(topic_id, 0, **{**quick, "group_id": ""}),
        "null group": _share_fetch(topic_id, 0, **{**quick, "group_id": None}),
        "empty member": {**_share_fetch(topic_id, 0, **quick), "member_id": ""},
        "bad member": _share_fetch(topic_id, 0, member="not-a-uuid", **quick),
        "unknown member": _share_fetch(topic_id, 0, member=member_id(12), **quick),
        "acknowledgements at the opening": _share_fetch(topic_id, 0, (0, 0, [ACCEPT]), **quick),
        "unknown topic": _share_fetch(UNKNOWN_ID, 0, **quick),
        "unknown partition": _share_fetch(topic_id, 0, partition=9, **quick),
        "no records": _share_fetch(topic_id, 0, **{**quick, "max_records": 0}),
    }.items():
        to.ask(f"fetch: {case}", "ShareFetch", request)
        to.ask("", "ShareFetch", {**_share_fetch(topic_id, -1, **quick), "topics": []}, keep=False)
    to.ask("acknowledge: opening", "ShareAcknowledge", _acknowledge(topic_id, 0, (0, 0, [ACCEPT])))
    to.ask("acknowledge: unknown session", "ShareAcknowledge", _acknowledge(topic_id, 5, (0, 0, [ACCEPT])))
    to.ask("acknowledge: unknown topic", "ShareAcknowledge", _acknowledge(UNKNOWN_ID, 1, (0, 0, [ACCEPT])))
    for member in (member_id(0), member_id(5)):
        to.ask("last member leaves", SHARE, _shares("workers", member, epoch=-1, subscribed_topic_names=None))
    to.ask("describe empty", "ShareGroupDescribe", {"group_ids": ["workers"]})
    to.ask("delete the group", "DeleteGroups", {"groups_names": ["workers"]})
