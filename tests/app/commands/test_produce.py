"""`sluice produce`: from arguments, lines, NDJSON and files; what is written is what was given."""

from __future__ import annotations

import json
import os
import pty
import signal
import time
from pathlib import Path

import pytest

from tests.app.commands.fake_gateway import FakeGateway, Reply
from tests.app.commands.running import Sluice, Spawn, run
from tests.broker_process import BrokerProcess


def _records(sluice: Sluice, topic: str, *more: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in sluice("consume", topic, "--json", *more).lines]


def test_each_argument_is_a_record(sluice: Sluice, topic: str) -> None:
    ran = sluice("produce", topic, "one", "two words", "", "-p", "2")
    assert ran.lines == [f"3 records written to {topic}.", "  partition 2: 3 records, offsets 0 to 2"]
    assert [r["value"] for r in _records(sluice, topic)] == ["one", "two words", ""]


def test_one_record_tells_its_offset(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "1", "first")
    ran = sluice("produce", topic, "-p", "1", "second")
    assert ran.lines == [f"1 record written to {topic}.", "  partition 1: offset 1"]


def test_the_outcome_is_one_json_document(sluice: Sluice, topic: str) -> None:
    document = sluice("produce", topic, "a", "b", "-p", "0", "--json").json
    assert document["topic"] == topic and document["records"] == 2
    assert document["partitions"] == [{"partition": 0, "records": 2, "first_offset": 0, "last_offset": 1}]
    assert isinstance(document["duration_ms"], int)


def test_each_line_of_the_input_is_a_record_byte_by_byte(sluice: Sluice, topic: str) -> None:
    given = (
        "plain\n\n  blanks \ntab\there\r\nümläut \u2028 \U0001f600\n".encode()
        + b"\xff\x00raw\nno line feed at the end"
    )
    sluice("produce", topic, "-p", "0", given=given)
    printed = sluice("consume", topic).raw
    assert printed == given + b"\n"


def test_an_empty_input_writes_nothing(sluice: Sluice, topic: str) -> None:
    assert sluice("produce", topic, given="").out == f"0 records written to {topic}.\n"


def test_lines_are_split_into_keys_and_values(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-K", r"\t", given="a\t1\nb\t2\tx\n\t3\n")
    assert sorted(sluice("consume", topic, "-o", "{key}|{value}").lines) == ["a|1", "b|2\tx", "|3"]


def test_a_line_without_a_key_stops_and_what_stood_before_it_is_written(sluice: Sluice, topic: str) -> None:
    ran = sluice("produce", topic, "-K", ":", given="a:1\nb:2\nnothing\nc:3\n", code=2)
    assert "Line 3 of the input has no key" in ran.err and "2 records before it written." in ran.err
    assert sorted(sluice("consume", topic).lines) == ["1", "2"]


def test_key_headers_partition_and_timestamp_are_for_all_records(sluice: Sluice, topic: str) -> None:
    sluice(
        "produce", topic, "x", "y", "-k", "k", "-p", "1", "-H", "a=1", "-H", "b", "-H", "a=two=2",
        "--timestamp", "2025-01-31T12:00:00.5Z",
    )  # fmt: skip
    for record in _records(sluice, topic):
        assert record["key"] == "k" and record["partition"] == 1
        assert record["timestamp"] == "2025-01-31T12:00:00.500Z"
        assert [(h["name"], h["value"]) for h in record["headers"]] == [
            ("a", "1"),
            ("b", None),
            ("a", "two=2"),
        ]  # type: ignore[attr-defined]


def test_values_are_text_json_or_base64(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-p", "0", '{"a":1}')
    sluice("produce", topic, "-p", "0", "-e", "json", ' {"b": 1.0} ', "null")
    sluice("produce", topic, "-p", "0", "-e", "base64", "AAH/", "--key-encoding", "base64", "-k", "/w==")
    values = sluice("consume", topic, "--null", "<null>").raw.split(b"\n")
    assert values == [b'{"a":1}', b'{"b": 1.0}', b"<null>", b"\x00\x01\xff", b""]
    assert _records(sluice, topic, "-e", "base64")[-1]["key"] == "/w=="


@pytest.mark.parametrize(
    ("encoding", "value", "said"),
    [("json", '{"a":', "Argument 1 is not json"), ("base64", "AAA", "Argument 1 is not base64")],
)
def test_a_value_that_is_not_what_it_should_be_is_named(
    sluice: Sluice, topic: str, encoding: str, value: str, said: str
) -> None:
    assert said in sluice("produce", topic, "-e", encoding, value, code=2).err
    assert (
        said.replace("Argument 1", "The key of argument 1")
        in sluice("produce", topic, "--key-encoding", encoding, "-k", value, "x", code=2).err
    )


def test_ndjson_is_taken_as_consume_prints_it(sluice: Sluice, topic: str) -> None:
    sluice("produce", topic, "-k", "k", "-H", "h=1", "-e", "json", "1.50", '"text"', '{"z":1,"a":[null]}')
    sluice("produce", topic, "--tombstone", "-k", "k")
    sluice("produce", topic, given=b"\xff\xfe\n")
    printed = sluice("consume", topic, "--json")
    sluice("topics", "create", "copy", "-p", "3")
    sluice("produce", "copy", "--ndjson", given=printed.out + "\n  \n")
    strange = {"topic", "offset"}
    copied = [{k: v for k, v in r.items() if k not in strange} for r in _records(sluice, "copy")]
    assert copied == [
        {k: v for k, v in json.loads(line).items() if k not in strange} for line in printed.lines
    ]


def test_drop_partition_lets_the_key_choose_again(sluice: Sluice, topic: str) -> None:
    line = '{"partition": 99, "value": {"n": 1.00}}\n'
    assert "99" in sluice("produce", topic, "--ndjson", given=line, code=1).err
    sluice("produce", topic, "--ndjson", "--drop-partition", given=line)
    assert sluice("consume", topic).lines == ['{"n": 1.00}']
    broken = sluice("produce", topic, "--ndjson", "--drop-partition", given="[]\n", code=2)
    assert "Line 1 of the input is not a JSON object" in broken.err


def test_a_refused_line_is_named_with_what_was_written_before(sluice: Sluice, topic: str) -> None:
    lines = ['{"value": 1}'] * 5 + ['{"valu": 1}', '{"value": 2}']
    ran = sluice("produce", topic, "--ndjson", "--batch", "2", given="\n".join(lines), code=1)
    assert "Line 6 of the input" in ran.err and "valu" in ran.err
    assert "Written before that: 4 records; nothing from line 5 of the input on." in ran.err
    assert len(_records(sluice, topic)) == 4


def test_json_tells_what_was_written_before_a_refusal(sluice: Sluice, topic: str) -> None:
    ran = sluice("produce", topic, "--ndjson", "--batch", "1", "--json", given='{"value":1}\nnope\n', code=1)
    assert ran.json["records"] == 1 and "Line 2 of the input" in ran.err


def test_a_record_that_is_too_large_is_told_among_others_that_are_not(sluice: Sluice) -> None:
    sluice("topics", "create", "small", "-c", "max.message.bytes=1000")
    ran = sluice("produce", "small", given="ok\n" + "x" * 2000 + "\nok\n", code=1)
    assert "1 record of 3" in ran.err and "line 2 of the input: " in ran.err
    assert sluice("consume", "small").lines == ["ok", "ok"]


def test_files_are_read_in_turn_and_a_whole_one_is_one_record(
    sluice: Sluice, topic: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1\n2")
    second.write_bytes(b"3\n")
    sluice("produce", topic, "-p", "0", "-f", str(first), "-f", str(second), "-f", "-", given="4\n")
    assert sluice("consume", topic).lines == ["1", "2", "3", "4"]
    sluice("produce", topic, "-p", "1", "--whole", "-f", str(first), "-f", str(second))
    assert sluice("consume", topic, "-p", "1", "--no-newline").raw == b"1\n23\n"


def test_a_file_that_is_not_there_is_an_error_of_one_line(sluice: Sluice, topic: str, tmp_path: Path) -> None:
    ran = sluice("produce", topic, "-f", str(tmp_path / "nothing"), code=1)
    assert "nothing: No such file or directory." in ran.err
    assert "Is a directory" in sluice("produce", topic, "-f", str(tmp_path), code=1).err


@pytest.mark.parametrize(
    "arguments",
    [
        ["v", "-f", "x"], ["v", "--ndjson"], ["--ndjson", "--whole"], ["--ndjson", "-k", "k"],
        ["--ndjson", "-p", "0"], ["--drop-partition"], ["-k", "k", "-K", ":"], ["-K", ""], ["--tombstone"],
        ["--tombstone", "-k", "k", "v"], ["--acks", "2"], ["-p", "-1", "v"], ["--timestamp", "latest", "v"],
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_are_wrong_usage(
    sluice: Sluice, topic: str, arguments: list[str]
) -> None:
    assert sluice("produce", topic, *arguments, given="x\n", code=2).out == ""
    assert _records(sluice, topic) == []


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_all_kinds_of_acks_write(sluice: Sluice, topic: str, acks: str) -> None:
    assert sluice("produce", topic, "--acks", acks, "x", "--json").json["records"] == 1
    assert len(_records(sluice, topic)) == 1


def test_many_lines_go_in_batches_and_keep_their_order(sluice: Sluice, topic: str) -> None:
    lines = [str(n) for n in range(5_000)]
    sluice("produce", topic, "-p", "0", given="\n".join(lines))
    assert sluice("consume", topic).lines == lines


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_lost_answer_doubles_nothing(
    sluice: Sluice, broker: BrokerProcess, fake: FakeGateway, topic: str, idempotent: bool
) -> None:
    passed_on, lost = Reply(forward=broker.http), Reply(forward=broker.http, hang_up=True)
    fake.will_answer(passed_on, lost, lost, passed_on)
    switch = "--idempotent" if idempotent else "--no-idempotent"
    ran = run("produce", topic, "a", "b", switch, url=fake.url, code=0 if idempotent else 3)
    assert sorted(sluice("consume", topic).lines) == ["a", "b"]
    if idempotent:
        assert ran.lines[0] == f"2 records written to {topic}." and "trying again" in ran.err
    else:
        assert "may or may not have been written: argument 1 to argument 2" in ran.err


def test_writing_survives_a_restart_of_the_gateway(
    spawn: Spawn, sluice: Sluice, broker: BrokerProcess, topic: str
) -> None:
    reading, writing = os.pipe()
    process = spawn("produce", topic, "-p", "0", stdin=reading)
    os.close(reading)
    os.write(writing, b"before\n")
    assert sluice("consume", topic, "--follow", "--from", "earliest", "-n", "1").lines == ["before"]
    broker.kill()
    os.write(writing, b"while it is away\n")
    time.sleep(0.3)
    broker.start()
    os.write(writing, b"after\n")
    os.close(writing)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0 and out.startswith(b"3 records written")
    assert b"trying again" in err
    assert sluice("consume", topic).lines == ["before", "while it is away", "after"]


def test_a_slow_input_is_written_line_by_line(spawn: Spawn, sluice: Sluice, topic: str) -> None:
    reading, writing = os.pipe()
    process = spawn("produce", topic, stdin=reading)
    os.close(reading)
    for number in range(2):
        os.write(writing, b"line %d\n" % number)
        lines = sluice("consume", topic, "--follow", "--from", "earliest", "-n", str(number + 1)).lines
        assert len(lines) == number + 1
    os.close(writing)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0 and out.startswith(b"2 records written")


def test_ctrl_c_tells_what_was_written(spawn: Spawn, sluice: Sluice, topic: str) -> None:
    reading, writing = os.pipe()
    process = spawn("produce", topic, stdin=reading)
    os.close(reading)
    os.write(writing, b"one\ntwo\n")
    assert len(sluice("consume", topic, "--follow", "--from", "earliest", "-n", "2").lines) == 2
    # A reader may see them before the answer has reached the writer.
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    os.close(writing)
    assert (process.returncode, out, err) == (130, b"", b"sluice: stopped; 2 records written.\n")


def test_a_person_at_a_terminal_is_told_what_to_do(spawn: Spawn, topic: str) -> None:
    terminal, other = pty.openpty()
    process = spawn("produce", topic, stdin=other)
    os.close(other)
    os.write(terminal, b"typed\n\x04")
    out, err = process.communicate(timeout=20)
    os.close(terminal)
    assert err == b"Records, one a line; Ctrl-D ends.\n" and out.startswith(b"1 record written")


def test_progress_is_shown_on_a_terminal_and_taken_away(spawn: Spawn, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("a line\n" * 150_000)
    terminal, other = pty.openpty()
    process = spawn("produce", topic, "-f", str(file), stderr=other)
    os.close(other)
    out, _ = process.communicate(timeout=60)
    shown = os.read(terminal, 65_536)
    os.close(terminal)
    assert b"records, " in shown and b"/s" in shown and shown.endswith(b"\r\x1b[K")
    assert out.startswith(b"150,000 records written")


def test_without_a_terminal_there_is_no_progress(spawn: Spawn, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("a line\n" * 50_000)
    out, err = spawn("produce", topic, "-f", str(file)).communicate(timeout=60)
    assert err == b"" and out.startswith(b"50,000 records written")
