"""`sluice import-groups`: groups and offsets of another broker continue here, however often they are imported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.commands.running import Ran, Sluice
from tests.broker_process import BrokerProcess
from tests.clients.line import LineConnection

BROKER_SCHEMES = ("text",)
Import = Callable[..., Ran]


@pytest.fixture
def import_groups(sluice: Sluice, tmp_path: Path) -> Import:
    """Imports two documents."""

    def call(groups: Any, offsets: Any, *options: str, code: int = 0) -> Ran:
        files = []
        for name, document in (("groups.json", groups), ("offsets.json", offsets)):
            file = tmp_path / name
            file.write_text(document if isinstance(document, str) else json.dumps(document))
            files.append(str(file))
        return sluice("import-groups", *files, *options, code=code)

    return call


def kept(topic: str, **changes: Any) -> dict[str, Any]:
    members = {"members": ["c1", "c2"], "assignments": {"c1": [0, 2], "c2": [1]}}
    return {"topic": topic, "generation": 3, "assignor": "round_robin"} | members | changes


def test_members_continue_in_their_generation_and_offsets_are_there(
    import_groups: Import, broker: BrokerProcess, topic: str
) -> None:
    group = topic
    ran = import_groups({group: kept(topic)}, {group: {topic: {"0": 17, "1": 4}}})
    assert ran.lines[1].split() == [group, "2", "0", "2,", "in", "generation", "3"]
    with LineConnection(broker.line_address) as line:
        assert line.ask("SYNC", f"{group} {topic} c1 3").payload == "generation=3 assigned=[0,2]"
        assert line.ask("HEARTBEAT", f"{group} {topic} c2 3").payload == "heartbeat=ok"
        assert line.ask("OFFSET", f"{group} {topic} 0").payload == "offset=17"
        assert line.ask("COMMIT", f"{group} {topic} c2 3 1 9").payload == "committed=true"
        again = import_groups({group: kept(topic)}, {group: {topic: {"0": 17, "1": 4}}}, "--json").json
        assert again["groups"] == [
            {"group_id": group, "offsets_set": 0, "offsets_kept": 2, "group": "left alone, in generation 3"}
        ]
        assert line.ask("OFFSET", f"{group} {topic} 1").payload == "offset=9"
        assert line.ask("JOIN", f"{group} {topic} c3 assignor=round_robin").number("generation") == 4
        import_groups({group: kept(topic)}, {group: {topic: {"0": 17, "1": 4}}})
        assert line.ask("HEARTBEAT", f"{group} {topic} c3 4").payload == "heartbeat=ok"


def test_lists_are_read_as_well_and_a_dry_run_changes_nothing(
    import_groups: Import, sluice: Sluice, topic: str
) -> None:
    group = topic
    documents = (
        [{"group": group, **kept(topic, members=[{"id": "c1"}, {"id": "c2"}])}],
        [{"group": group, "topic": topic, "partition": 2, "offset": 8}],
    )
    assert "A dry run" in import_groups(*documents, "--dry-run").out
    assert sluice("groups", "list", group).rows == []
    import_groups(*documents)
    shown = sluice("groups", "describe", group, "--json").json
    assert (shown["generation_id"], len(shown["members"])) == (3, 2)
    assert shown["members"][0]["partitions"] == [{"topic": topic, "partition": p} for p in (0, 2)]
    assert sluice("offsets", "get", group, "--json").json["offsets"][0]["next_offset"] == 8


def test_a_group_without_members_keeps_generation_and_offsets(
    import_groups: Import, sluice: Sluice, topic: str
) -> None:
    import_groups(
        {topic: {"topic": topic, "generation": 5, "members": [], "assignments": {}}},
        {topic: {topic: {"0": 1}}},
    )
    shown = sluice("groups", "describe", topic, "--json").json
    assert (shown["state"], shown["generation_id"]) == ("Empty", 5)
    import_groups({}, {f"{topic}-offsets": {topic: {"0": 1}}})
    assert sluice("offsets", "get", f"{topic}-offsets", "--json").json["offsets"][0]["next_offset"] == 1


@pytest.mark.parametrize(
    ("groups", "offsets", "reason"),
    [
        ("{", {}, "is no JSON"),
        ("7", {}, "an object, or a list of objects"),
        ({"g": 7}, {}, "the name of a group"),
        ([{"topic": "t"}], {}, "the name of a group"),
        ({"g": {"generation": 1}}, {}, "the topic must be a name"),
        ({"g": {"topic": "t", "generation": -1}}, {}, "the generation must be a whole number"),
        ({"g": kept("t", assignor="sticky")}, {}, "not round_robin or range"),
        ({"g": kept("t", members=[{}])}, {}, "a member has no name"),
        ({"g": kept("t", assignments=[])}, {}, "assignments an object"),
        ({"g": kept("t", assignments={"c1": 0})}, {}, "must be a list of partitions"),
        ({}, {"g": {"t": 7}}, "partitions must be an object"),
        ({}, {"g": {"t": {"zero": 7}}}, "the partition must be a whole number"),
        ({}, {"g": {"t": {"0": "7"}}}, "the offset must be a whole number"),
        ({}, {"g": {"nowhere": {"0": 7}}}, "nowhere"),
        ({"g": kept("nowhere")}, {}, "nowhere"),
    ],
)
def test_what_cannot_be_taken_over_is_one_line(
    import_groups: Import, groups: Any, offsets: Any, reason: str
) -> None:
    ran = import_groups(groups, offsets, code=1)
    assert reason in ran.err


def test_a_group_with_members_of_its_own_is_not_taken_over(
    import_groups: Import, broker: BrokerProcess, topic: str
) -> None:
    with LineConnection(broker.line_address) as line:
        line.ask("JOIN", f"{topic} {topic} mine")
        refused = import_groups({topic: kept(topic)}, {}, code=1)
        assert "Stop its consumers first" in refused.err
        assert line.ask("HEARTBEAT", f"{topic} {topic} mine 1").payload == "heartbeat=ok"
