"""`sluice consume`: what is printed, from where, in which form; and how a reading ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.app.commands.running import Ran, Sluice, Spawn, lines_of, until_connected
from tests.broker_process import ROOT, BrokerProcess


def _values(ran: Ran) -> list[str]:
    return sorted(ran.lines)


# --- where to begin -----------------------------------------------------------------------------------------


def test_all_records_of_all_partitions_are_printed(sluice: Sluice, topic: str) -> None:
    for partition in "012":
        sluice("produce", topic, "-p", partition, f"a{partition}", f"b{partition}")
    lines = sluice("consume", topic).lines
    assert sorted(lines) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert all(lines.index(f"a{p}") < lines.index(f"b{p}") for p in "012")


def test_an_empty_topic_prints_nothing(sluice: Sluice, topic: str) -> None:
    for begin in ("earliest", "latest", "0", "-5", "1h"):
        assert sluice("consume", topic, "--from", begin).raw == b""


@pytest.mark.parametrize(
    ("begin", "values"),
    [
        ("earliest", ["0", "1", "2", "3", "4"]),
        ("2", ["2", "3", "4"]),
        ("-2", ["3", "4"]),
        ("-99", ["0", "1", "2", "3", "4"]),
        ("latest", []),
        ("2020-01-03T00:00Z", ["2", "3", "4"]),
        ("@1577923200", ["1", "2", "3", "4"]),
        ("1w", []),
    ],
)
def test_a_reading_begins_where_one_wants(sluice: Sluice, begin: str, values: list[str]) -> None:
    name = "begin-here"
    if sluice("topics", "create", name, "--if-not-exists", "--json").json["created"]:
        for n in range(5):
            sluice("produce", name, str(n), "--timestamp", f"2020-01-0{n + 1}T00:00Z")
    assert sluice("consume", name, "--from", begin).lines == values


def test_offsets_outside_of_a_partition_are_told(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "0", *"abcd")
    sluice("topics", "truncate", topic, "--before", "2", "-y")
    early = sluice("consume", topic, "-p", "0", "--from", "0")
    assert early.lines == ["c", "d"] and "Partition 0 begins at offset 2" in early.err
    late = sluice("consume", topic, "-p", "0", "--from", "99")
    assert late.lines == [] and "Partition 0 ends at offset 4" in late.err


def test_partitions_can_be_chosen(sluice: Sluice, topic: str) -> None:
    for partition in "012":
        sluice("produce", topic, "-p", partition, partition)
    assert _values(sluice("consume", topic, "-p", "0,2")) == ["0", "2"]
    assert _values(sluice("consume", topic, "-p", "1-2", "--from", "0")) == ["1", "2"]
    assert "no partition 3" in sluice("consume", topic, "-p", "3", code=1).err
    assert sluice("consume", topic, "-p", "x", code=2).out == ""


def test_a_limit_ends_a_reading(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "0", *map(str, range(10)))
    for begin in ("earliest", "0"):
        assert sluice("consume", topic, "-n", "3", "--from", begin).lines == ["0", "1", "2"]
    assert sluice("consume", topic, "-n", "0").lines == []
    assert sluice("consume", topic, "-n", "99").lines == [str(n) for n in range(10)]


def test_filters_work_from_wherever_one_begins(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-K", ":", given="ant:1\nbee:2\nant:3\nantler:4\n")
    sluice("produce", topic, "-k", "cow", "-H", "trace=7", "5")
    for begin in ("earliest", "0", "1h"):
        read = ["consume", topic, "--from", begin]
        assert _values(sluice(*read, "-k", "ant")) == ["1", "3"]
        assert _values(sluice(*read, "--key-prefix", "ant")) == ["1", "3", "4"]
        assert _values(sluice(*read, "-H", "trace=7")) == ["5"]
        assert _values(sluice(*read, "-k", "ant", "-n", "1")) == ["1"]
        assert _values(sluice(*read, "-k", "nobody")) == []
    assert sluice("consume", topic, "-k", "a", "--key-prefix", "a", code=2).out == ""
    assert sluice("consume", topic, "-H", "novalue", code=2).out == ""


def test_a_cursor_of_the_api_continues_at_its_position(
    sluice: Sluice, broker: BrokerProcess, topic: str
) -> None:
    import httpx

    sluice("produce", topic, "-p", "0", "seen", "next", "last")
    page = httpx.get(f"{broker.http}/api/v1/topics/{topic}/records", params={"limit": 1}).json()
    assert sluice("consume", topic, "--cursor", page["next_cursor"]).lines == ["next", "last"]
    assert "cursor" in sluice("consume", topic, "--cursor", "nonsense", code=1).err
    assert sluice("consume", topic, "--cursor", "x", "--from", "0", code=2).out == ""


# --- what is printed ----------------------------------------------------------------------------------------


def test_formats_show_what_they_say(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "1", "-k", "k", "-H", "h=1", "--timestamp", "2020-01-01T00:00Z", "v w")
    assert sluice("consume", topic, "-o", "key-value").lines == ["k\tv w"]
    assert sluice("consume", topic, "-o", "full").lines == ["1\t0\t2020-01-01T00:00:00.000Z\tk\tv w"]
    template = "{topic}/{partition}@{offset} {timestamp_ms} [{headers}] {header.h}{header.no}{value}"
    assert sluice("consume", topic, "-o", template).lines == [f"{topic}/1@0 1577836800000 [h=1] 1v w"]
    assert "no field {nope}" in sluice("consume", topic, "-o", "{nope}", code=2).err
    assert "'vlaue' is neither" in sluice("consume", topic, "-o", "vlaue", code=2).err


def test_json_is_a_record_a_line_as_the_api_has_it(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "0", "-e", "json", "-k", "k", '{"n": 1.0}')
    expected = {
        "topic": topic, "partition": 0, "offset": 0, "timestamp_type": "CreateTime", "key": "k",
        "key_encoding": "utf8", "value": {"n": 1.0}, "value_encoding": "json", "headers": [],
    }  # fmt: skip
    for arguments in (
        ["--json"],
        ["-o", "json"],
        ["--json", "--from", "0"],
        ["--json", "--follow", "--from", "earliest", "-n", "1"],
    ):
        (line,) = sluice("consume", topic, *arguments).lines
        record = json.loads(line)
        assert {k: record[k] for k in expected} == expected and '{"n": 1.0}' in line
        assert set(record) == {*expected, "timestamp", "timestamp_ms"}
    (line,) = sluice("consume", topic, "--json", "-e", "base64").lines
    assert json.loads(line)["value"] == "eyJuIjogMS4wfQ=="
    assert "--encoding is about JSON" in sluice("consume", topic, "-e", "base64", code=2).err


def test_a_tombstone_is_null_in_json_and_what_one_wants_in_text(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "--tombstone", "-k", "k")
    assert sluice("consume", topic).lines == [""]
    assert sluice("consume", topic, "--null", "NULL").lines == ["NULL"]
    assert json.loads(sluice("consume", topic, "--json").out)["value"] is None


def test_a_topic_that_does_not_exist_is_refused(sluice: Sluice) -> None:
    assert "no topic named 'nowhere'" in sluice("consume", "nowhere", code=1).err
    assert "no topic named 'nowhere'" in sluice("consume", "nowhere", "--follow", code=1).err


def test_a_record_cannot_drive_the_terminal(spawn: Spawn, sluice: Sluice, topic: str) -> None:
    evil = b"\x1b]0;owned\x07\x1b[2Jtext\ttab\xff"
    sluice("produce", topic, given=evil)
    assert sluice("consume", topic).raw == evil + b"\n"
    terminal, other = pty.openpty()
    process = spawn("consume", topic, stdout=other)
    process.wait(20)
    os.close(other)
    shown = os.read(terminal, 65_536)
    os.close(terminal)
    assert b"\x1b" not in shown and b"\\x1b]0;owned\\x07" in shown and b"text\ttab\\xff" in shown


# --- following ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [[], ["--from", "earliest"], ["--from", "-1"], ["--from", "0"]])
def test_following_gives_what_comes_without_gap_or_repeat(
    spawn: Spawn, sluice: Sluice, topic: str, begin: list[str]
) -> None:
    sluice("produce", topic, "-p", "0", "old")
    process = spawn("consume", topic, "--follow", *begin)
    if begin:
        assert lines_of(process, 1) == [b"old"]
    else:
        until_connected(process)
    for number in range(20):
        sluice("produce", topic, "-p", str(number % 3), str(number))
    assert sorted(lines_of(process, 20)) == sorted(b"%d" % n for n in range(20))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_following_without_a_word(spawn: Spawn, topic: str, number: signal.Signals) -> None:
    process = spawn("consume", topic, "--follow", "--json")
    until_connected(process)
    process.send_signal(number)
    assert process.communicate(timeout=10) == (b"", b"")
    assert process.returncode == 0


def test_a_limit_ends_following(spawn: Spawn, sluice: Sluice, topic: str) -> None:
    process = spawn("consume", topic, "--follow", "--from", "earliest", "-n", "2")
    sluice("produce", topic, "1")
    assert lines_of(process, 1) == [b"1"]
    sluice("produce", topic, "2")
    assert process.communicate(timeout=20)[0] == b"2\n"
    assert process.returncode == 0


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_failure(
    broker: BrokerProcess, sluice: Sluice, topic: str
) -> None:
    sluice("produce", topic, given="line\n" * 50_000)
    for command in (
        f"consume {topic}",
        f"consume {topic} --json",
        f"consume {topic} --follow --from earliest",
    ):
        shell = f"set -o pipefail; {sys.executable} -m app {command} | head -n 1"
        done = subprocess.run(
            ["bash", "-c", shell],
            cwd=ROOT,
            env={**os.environ, "SLUICE_URL": broker.http},
            capture_output=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


def test_a_disk_that_is_full_is_told_in_one_line(spawn: Spawn, sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "x")
    with open("/dev/full", "wb") as full:
        process = spawn("consume", topic, stdout=full)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err == b"sluice: the output cannot be written: No space left on device.\n"
