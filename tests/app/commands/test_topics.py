"""`sluice topics` against a running gateway: every verb as a table and as JSON, and what it refuses."""

from __future__ import annotations

import os
import pty

import pytest

from tests.app.commands.running import Sluice, Spawn
from tests.core.listeners.kafka.test_configs import ALL_SETTINGS


def test_a_topic_is_created_with_partitions_and_settings(sluice: Sluice) -> None:
    ran = sluice(
        "topics", "create", "made", "-p", "3", "-c", "retention.ms=60000", "-c", "cleanup.policy=compact"
    )
    assert ran.out == "Topic made created, with 3 partitions.\n"
    detail = sluice("topics", "describe", "made", "--json").json
    assert detail["partitions"] == 3
    assert detail["configs"] == {"cleanup.policy": "compact", "retention.ms": "60000"}


def test_every_setting_of_kafka_can_be_given(sluice: Sluice) -> None:
    options = [part for name, value in ALL_SETTINGS.items() for part in ("-c", f"{name}={value}")]
    sluice("topics", "create", "spelled-out", *options)
    assert sluice("topics", "describe", "spelled-out", "--json").json["configs"] == ALL_SETTINGS
    ran = sluice("topics", "alter", "spelled-out", "-c", "cleanup.policy=", "--json")
    assert ran.code == 0
    assert sluice("topics", "describe", "spelled-out", "--json").json["configs"]["cleanup.policy"] == ""


def test_creation_tells_programs_whether_it_was_new(sluice: Sluice) -> None:
    first = sluice("topics", "create", "told", "--json").json
    again = sluice("topics", "create", "told", "--if-not-exists", "--json").json
    assert (first["created"], again["created"]) == (True, False)
    assert first["topic"]["topic_id"] == again["topic"]["topic_id"]


def test_a_topic_that_exists_is_refused_and_the_way_out_is_named(sluice: Sluice, topic: str) -> None:
    ran = sluice("topics", "create", topic, code=1)
    assert ran.out == ""
    assert f"Topic '{topic}' exists already." in ran.err and "--if-not-exists" in ran.err
    assert "exists already" in sluice("topics", "create", topic, "-p", "7", code=1).err


def test_if_not_exists_warns_when_the_shape_differs(sluice: Sluice, topic: str) -> None:
    ran = sluice("topics", "create", topic, "-p", "7", "--if-not-exists")
    assert ran.out == f"Topic {topic} was there already, with 3 partitions.\n"
    assert "warning" in ran.err and "3 partitions, not 7" in ran.err


def test_a_dry_run_creates_nothing(sluice: Sluice) -> None:
    assert "could be created" in sluice("topics", "create", "dry", "-p", "2", "--dry-run").out
    assert sluice("topics", "describe", "dry", code=1).out == ""
    assert sluice("topics", "create", "dry", "--dry-run", "--json").json["dry_run"] is True
    sluice("topics", "create", "dry")
    assert "exists already" in sluice("topics", "create", "dry", "--dry-run", code=1).err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no good"], "no good"),
        (["bad-setting", "-c", "colour=red"], "colour"),
        (["bad-value", "-c", "retention.ms=soon"], "retention.ms"),
    ],
)
def test_what_the_gateway_refuses_is_said_in_its_words(
    sluice: Sluice, arguments: list[str], said: str
) -> None:
    ran = sluice("topics", "create", *arguments, code=1)
    assert ran.err.startswith("sluice: ") and said in ran.err
    assert len(ran.err.splitlines()) <= 3


@pytest.mark.parametrize(
    "arguments", [["x", "-p", "0"], ["x", "-c", "novalue"], ["x", "-c", "=1"], [], ["x", "--nope"]]
)
def test_wrong_usage_is_exit_code_2(sluice: Sluice, arguments: list[str]) -> None:
    assert sluice("topics", "create", *arguments, code=2).out == ""


def test_the_list_shows_names_partitions_and_settings(sluice: Sluice) -> None:
    sluice("topics", "create", "list-b", "-p", "2")
    sluice("topics", "create", "list-a", "-c", "retention.ms=1000")
    ran = sluice("topics", "list", "list-")
    assert ran.lines[0].split() == ["TOPIC", "PARTITIONS", "SETTINGS"]
    assert ran.rows == [["list-a", "1", "retention.ms=1000"], ["list-b", "2", "-"]]
    assert [item["name"] for item in sluice("topics", "list", "list-", "--json").json] == ["list-a", "list-b"]


def test_the_long_list_shows_records_and_sizes(sluice: Sluice) -> None:
    sluice("topics", "create", "long-list")
    sluice("produce", "long-list", "one", "two")
    (row,) = sluice("topics", "list", "long-list", "--long").rows
    assert row[:3] == ["long-list", "1", "2"]
    (item,) = sluice("topics", "list", "long-list", "-l", "--json").json
    assert item["records"] == 2 and item["size_bytes"] > 0


def test_a_list_is_read_over_all_its_pages(sluice: Sluice, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        sluice("topics", "create", f"page-{number}")
    monkeypatch.setattr("app.commands.client.PAGE_SIZE", 2)
    assert len(sluice("topics", "list", "page-", "--json").json) == 5


def test_an_empty_list_is_a_heading_or_an_empty_array(sluice: Sluice) -> None:
    assert sluice("topics", "list", "nothing-here").lines == ["TOPIC  PARTITIONS  SETTINGS"]
    assert sluice("topics", "list", "nothing-here", "--json").json == []


def test_a_description_shows_partitions_and_the_settings_that_were_set(sluice: Sluice) -> None:
    sluice(
        "topics", "create", "shown", "-p", "2", "-c", "retention.ms=86400000", "-c", "segment.bytes=1048576"
    )
    sluice("produce", "shown", "-p", "1", "a", "b", "c")
    ran = sluice("topics", "describe", "shown")
    text = ran.out
    assert ran.lines[0] == "Topic shown"
    assert ["partitions", "2"] in [line.split() for line in ran.lines]
    partitions = [
        line.split()[:4] for line in ran.lines if line.strip()[:1].isdigit() and "KiB" not in line[:10]
    ][:2]
    assert partitions == [["0", "0", "0", "0"], ["1", "0", "3", "3"]]
    assert "86400000  1 d" in text and "1.0 MiB" in text and "topic" in text
    assert "--all shows them" in text and "cleanup.policy" not in text
    assert "cleanup.policy" in sluice("topics", "describe", "shown", "--all").out


def test_several_topics_are_described_one_after_the_other(sluice: Sluice, topic: str) -> None:
    sluice("topics", "create", "second")
    assert sluice("topics", "describe", topic, "second").out.count("Topic ") == 2
    assert [d["name"] for d in sluice("topics", "describe", topic, "second", "--json").json] == [
        topic,
        "second",
    ]


def test_a_misspelt_topic_is_answered_with_the_nearest_name(sluice: Sluice) -> None:
    sluice("topics", "create", "payments-eu")
    ran = sluice("topics", "describe", "payment-eu", code=1)
    assert "no topic named 'payment-eu'" in ran.err and "Did you mean 'payments-eu'?" in ran.err
    assert "`sluice topics list`" in sluice("topics", "describe", "zzzzz", code=1).err


@pytest.mark.parametrize("name", ["..", ".", "a/b", "ü", "a b", "\x1b[31m", "a" * 250, "\udce4"])
def test_no_name_is_taken_for_a_path(sluice: Sluice, name: str) -> None:
    ran = sluice("topics", "describe", name, code=1)
    assert ran.err.startswith("sluice: ") and "\x1b" not in ran.err


def test_alter_shows_what_was_and_what_is(sluice: Sluice, topic: str) -> None:
    ran = sluice("topics", "alter", topic, "-c", "retention.ms=1000", "-p", "4")
    assert ran.lines[0] == f"Topic {topic}:"
    assert [line.split() for line in ran.lines[2:]] == [
        ["partitions", "3", "4"],
        ["retention.ms", "604800000", "1000"],
    ]
    back = sluice("topics", "alter", topic, "--delete-config", "retention.ms", "--json").json
    assert back["changes"] == [{"name": "retention.ms", "before": "1000", "after": "604800000"}]


def test_a_dry_alter_changes_nothing(sluice: Sluice, topic: str) -> None:
    ran = sluice("topics", "alter", topic, "-c", "retention.ms=1000", "-p", "5", "--dry-run")
    assert "if this were not a dry run" in ran.out and ran.lines[2].split() == ["partitions", "3", "5"]
    detail = sluice("topics", "describe", topic, "--json").json
    assert detail["partitions"] == 3 and detail["configs"] == {}


def test_alter_wants_to_know_what(sluice: Sluice, topic: str) -> None:
    assert "Nothing to change" in sluice("topics", "alter", topic, code=2).err
    both = sluice("topics", "alter", topic, "-c", "retention.ms=1", "-d", "retention.ms", code=2)
    assert "--delete-config" in both.err
    assert "partitions" in sluice("topics", "alter", topic, "-p", "2", code=1).err


def test_truncate_deletes_what_lies_before(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "0", *"abcdef")
    dry = sluice("topics", "truncate", topic, "--before", "4", "--dry-run")
    assert dry.rows[0] == ["0", "0", "4", "6", "4"] and "nothing was deleted" in dry.out
    done = sluice("topics", "truncate", topic, "--before", "4", "--yes", "--json").json
    assert done["dry_run"] is False
    assert [p["deleted"] for p in done["partitions"]] == [4, 0, 0]
    assert sluice("consume", topic).lines == ["e", "f"]


def test_truncate_takes_times_ends_and_single_partitions(sluice: Sluice, topic: str) -> None:
    for partition in "012":
        sluice("produce", topic, "-p", partition, "--timestamp", "2020-01-01T00:00Z", "old")
        sluice("produce", topic, "-p", partition, "new")
    sluice("topics", "truncate", topic, "--before", "1h", "-p", "0-1", "-y")
    assert sorted(sluice("consume", topic).lines) == ["new", "new", "new", "old"]
    sluice("topics", "truncate", topic, "--before", "latest", "-y")
    assert sluice("consume", topic).out == ""
    assert (
        "ends at offset" in sluice("topics", "truncate", topic, "--before", "9", "-p", "0", "-y", code=1).err
    )
    assert (
        "no partition 8" in sluice("topics", "truncate", topic, "--before", "0", "-p", "8", "-y", code=1).err
    )


def test_a_command_that_deletes_asks_and_without_a_terminal_requires_yes(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "precious")
    for arguments in (["delete", topic], ["truncate", topic, "--before", "latest"]):
        assert "--yes" in sluice("topics", *arguments, given="y\n", code=2).err
    assert sluice("consume", topic).lines == ["precious"]


@pytest.mark.parametrize(
    ("answer", "gone"), [(b"y\n", True), (b"\n", False), (b"n\n", False), (b"\x04", False)]
)
def test_a_person_at_a_terminal_is_asked(
    spawn: Spawn, sluice: Sluice, topic: str, answer: bytes, gone: bool
) -> None:
    sluice("produce", topic, "a", "b")
    terminal, other = pty.openpty()
    process = spawn("topics", "delete", topic, stdin=other, stderr=other)
    os.close(other)
    asked = b""
    while b"[y/N]" not in asked:
        asked += os.read(terminal, 1000)
    assert f"Delete topic {topic} (2 records, ".encode() in asked
    os.write(terminal, answer)
    out, _ = process.communicate(timeout=20)
    os.close(terminal)
    assert process.returncode == (0 if gone else 1)
    assert out == (f"Topic {topic} deleted.\n".encode() if gone else b"")
    sluice("topics", "describe", topic, code=1 if gone else 0)


def test_delete_removes_topics(sluice: Sluice, topic: str) -> None:
    sluice("topics", "create", "second-to-go")
    ran = sluice("topics", "delete", topic, "second-to-go", "--yes")
    assert ran.lines == [f"Topic {topic} deleted.", "Topic second-to-go deleted."]
    assert "no topic named" in sluice("topics", "delete", topic, "--yes", code=1).err
    gone = sluice("topics", "delete", topic, "--yes", "--if-exists", "--json").json
    assert gone == {"deleted": [], "missing": [topic]}
    assert "was not there" in sluice("topics", "delete", topic, "--yes", "--if-exists").out


def test_one_misspelt_name_keeps_the_others(sluice: Sluice, topic: str) -> None:
    sluice("topics", "delete", topic, "no-such", "--yes", code=1)
    sluice("topics", "describe", topic)
