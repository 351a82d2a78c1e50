"""`sluice groups`: what it shows of live groups, and what it changes."""

from __future__ import annotations

import json
import os
import pty
import signal

import pytest

from tests.app.commands.running import Sluice, Spawn, lines_of
from tests.broker_process import BrokerProcess

# A first member is not kept waiting for a second.


@pytest.fixture
def group(sluice: Sluice, topic: str) -> str:
    """A group without members that has read two of the ten records in partition 0."""
    sluice("produce", topic, "-p", "0", *map(str, range(10)))
    sluice("offsets", "set", topic, f"{topic}:0=2")
    return topic


def test_the_list_shows_groups_by_state(sluice: Sluice, group: str) -> None:
    assert sluice("groups", "list", group).rows == [[group, "Empty", "classic", "-"]]
    assert [g["group_id"] for g in sluice("groups", "list", group, "--json").json] == [group]
    assert sluice("groups", "list", group, "--state", "empty", "--state", "dead").rows != []
    assert sluice("groups", "list", group, "--state", "stable").rows == []
    assert sluice("groups", "list", "--state", "happy", code=2).out == ""


def test_the_list_shows_groups_by_type(sluice: Sluice, group: str) -> None:
    assert sluice("groups", "list", group, "--type", "classic", "--type", "share").rows != []
    assert sluice("groups", "list", group, "--type", "consumer").rows == []
    assert sluice("groups", "list", "--type", "other", code=2).out == ""


def test_the_long_list_shows_members_and_lag(sluice: Sluice, group: str) -> None:
    assert sluice("groups", "list", group, "-l").rows == [[group, "Empty", "classic", "0", "8", "-"]]
    (item,) = sluice("groups", "list", group, "-l", "--json").json
    assert (item["members"], item["total_lag"]) == (0, 8)


def test_a_live_group_is_described_with_members_and_what_they_own(
    spawn: Spawn, sluice: Sluice, group: str
) -> None:
    process = spawn("consume", group, "--group", group, "--follow")
    assert lines_of(process, 8) == [b"%d" % n for n in range(2, 10)]
    ran = sluice("groups", "describe", group)
    assert ran.lines[0] == f"Group {group}"
    assert ["state", "Stable"] in [line.split() for line in ran.lines]
    assert f"{group}[0-2]" in ran.out and "(leader)" in ran.out and "sluice-" in ran.out
    document = sluice("groups", "describe", group, "--json").json
    assert document["state"] == "Stable" and len(document["members"]) == 1
    assert {"total_lag", "partitions", "generation_id"} <= set(document)
    refused = sluice("groups", "reset", group, "--to", "earliest", "--execute", code=1)
    assert "Stop its consumers first" in refused.err
    assert "Stop its consumers first" in sluice("groups", "delete", group, "--yes", code=1).err
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert sluice("groups", "describe", group, "--json").json["state"] == "Empty"


def test_several_groups_are_described(sluice: Sluice, group: str) -> None:
    sluice("offsets", "set", "another", f"{group}:1=0")
    assert [d["group_id"] for d in sluice("groups", "describe", group, "another", "--json").json] == [
        group,
        "another",
    ]
    assert sluice("groups", "describe", group, "another").out.count("Group ") == 2


def test_lag_is_shown_by_partition_and_in_total(sluice: Sluice, group: str) -> None:
    ran = sluice("groups", "lag", group)
    assert ran.lines[1].split() == [group, "0", "2", "10", "8", "-"]
    assert ran.lines[-1] == f"Lag of {group}: 8 records."
    assert sluice("groups", "lag", group, "--json").json["total_lag"] == 8


def test_watched_lag_is_a_line_each_time_and_ends_with_ctrl_c(
    spawn: Spawn, sluice: Sluice, group: str
) -> None:
    process = spawn("groups", "lag", group, "--watch", "-i", "0.1")
    heading, first = lines_of(process, 2)
    assert heading.split() == [b"TIME", b"LAG", b"CHANGE"] and first.split()[1] == b"8"
    sluice("produce", group, "-p", "0", "more")
    for _ in range(100):
        _, lag, change = (*lines_of(process, 1)[0].split(), b"")[:3]
        if lag == b"9":
            break
    assert lag == b"9" and change.startswith(b"+") and change.endswith(b"/s")
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert process.communicate()[1] == b""


def test_watched_lag_is_ndjson_for_programs(spawn: Spawn, group: str) -> None:
    process = spawn("groups", "lag", group, "--watch", "-i", "0.1", "--json")
    for line in lines_of(process, 3):
        document = json.loads(line)
        assert document["total_lag"] == 8 and document["time"].endswith("Z")


def test_watched_lag_is_a_screen_on_a_terminal(spawn: Spawn, group: str) -> None:
    terminal, other = pty.openpty()
    process = spawn("groups", "lag", group, "--watch", "-i", "0.1", stdout=other)
    shown = b""
    while shown.count(b"\x1b[2J") < 2:
        shown += os.read(terminal, 65_536)
    process.send_signal(signal.SIGTERM)
    process.wait(10)
    os.close(other)
    os.close(terminal)
    assert b"8 records" in shown and b"PARTITION" in shown


def test_watching_survives_a_restart_of_the_gateway(spawn: Spawn, broker: BrokerProcess, group: str) -> None:
    process = spawn("groups", "lag", group, "--watch", "-i", "0.1", "--json")
    lines_of(process, 1)
    broker.kill()
    broker.start()
    assert all(json.loads(line)["total_lag"] == 8 for line in lines_of(process, 20))
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0


def test_a_reset_shows_before_and_after_and_changes_nothing(sluice: Sluice, group: str) -> None:
    ran = sluice("groups", "reset", group, "--to", "latest")
    assert ran.lines[1].split() == [group, "0", "2", "10", "+8"]
    assert "--execute does it" in ran.out
    assert sluice("groups", "lag", group, "--json").json["total_lag"] == 8
    dry = sluice("groups", "reset", group, "--to", "latest", "--json").json
    assert dry["dry_run"] is True and dry["offsets"][0]["after"] == 10


@pytest.mark.parametrize(
    ("where", "after"),
    [
        (["--to", "earliest"], 0), (["--to", "latest"], 10), (["--to", "7"], 7), (["--shift", "3"], 5),
        (["--shift", "-1"], 1), (["--to", "1h"], 0), (["--to", "2020-01-01T00:00Z"], 0),
    ],
)  # fmt: skip
def test_a_reset_sets_the_wanted_position(sluice: Sluice, group: str, where: list[str], after: int) -> None:
    assert f"Group {group}: 1 offset set." in sluice("groups", "reset", group, *where, "--execute").out
    (partition,) = sluice("groups", "lag", group, "--json").json["partitions"]
    assert partition["next_offset"] == after


def test_a_reset_of_topics_reaches_all_their_partitions(sluice: Sluice, group: str) -> None:
    result = sluice(
        "groups", "reset", "a-new-group", "-t", group, "--to", "earliest", "--execute", "--json"
    ).json
    assert [p["partition"] for p in result["offsets"]] == [0, 1, 2]
    assert "a-new-group" in sluice("groups", "list").out


@pytest.mark.parametrize("where", [[], ["--to", "latest", "--shift", "1"], ["--to", "-5"], ["--shift", "x"]])
def test_a_reset_wants_to_know_where(sluice: Sluice, group: str, where: list[str]) -> None:
    assert sluice("groups", "reset", group, *where, code=2).out == ""


def test_delete_wants_a_yes_and_then_forgets(sluice: Sluice, group: str) -> None:
    assert "--yes" in sluice("groups", "delete", group, code=2).err
    assert sluice("groups", "delete", group, "--yes").lines == [f"Group {group} deleted."]
    gone = sluice("groups", "delete", group, "--yes", code=1)
    assert "`sluice groups list`" in gone.err
    assert sluice("groups", "delete", group, "-y", "--if-exists", "--json").json == {
        "deleted": [],
        "missing": [group],
    }


def test_what_was_deleted_before_a_refusal_is_told(sluice: Sluice, group: str) -> None:
    ran = sluice("groups", "delete", group, "no-such", "--yes", code=1)
    assert f"Deleted before that: {group}." in ran.err


@pytest.mark.parametrize("verb", ["describe", "lag"])
def test_an_unknown_group_is_refused(sluice: Sluice, verb: str) -> None:
    ran = sluice("groups", verb, "nobody-here", code=1)
    assert "nobody-here" in ran.err and "`sluice groups list` shows all groups." in ran.err
