"""The README's tour, typed in as it stands."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.broker.broker_configs import DYNAMIC, FIXED
from core.topic_config import DEFINITIONS, STORED_ONLY
from tests.broker_process import ROOT, BrokerProcess

README = (ROOT / "README.md").read_text()


def lines_of(first: str, after: str) -> list[str]:
    """The shell lines between two headings."""
    part = README[README.index(first) : README.index(after)]
    return [line for block in re.findall(r"```sh\n(.*?)```", part, re.DOTALL) for line in block.splitlines()]


LINES = lines_of("## Five minutes", "## HTTP in short")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    yield process.start()
    process.kill()


def typed(line: str, broker: BrokerProcess) -> str:
    """What a line of the tour prints."""
    for address, real in (
        ("127.0.0.1:8082", broker.http.removeprefix("http://")),
        ("127.0.0.1:9092", broker.kafka),
    ):
        line = line.replace(address, real)
    line = line.replace("curl ", "curl -sS ")
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_tour_with_curl_works_as_typed(broker: BrokerProcess) -> None:
    answers = [json.loads(typed(line, broker)) for line in LINES if "curl" in line]
    assert len(answers) == 8
    *good, refused = answers
    assert all("status" not in answer for answer in good)
    assert good[0]["records"][0]["offset"] == 0
    assert good[1]["records"][0]["value"] == "Hello"
    assert good[2]["partitions"] == 3
    assert [r["offset"] is not None for r in good[3]["records"]] == [True, True]
    assert (refused["status"], refused["errors"][0]["field"]) == (422, "vaule")


@pytest.mark.client("kcat")
def test_the_tour_with_kcat_works_as_typed(broker: BrokerProcess) -> None:
    typed(LINES[0], broker)
    listing, _, read = [typed(line, broker) for line in LINES if "kcat" in line]
    assert 'topic "hello" with 1 partitions' in listing
    assert read.splitlines()[-1] == "from kcat"
    assert "Hello" in read.splitlines()


def test_the_consumer_with_curl_works_as_typed(broker: BrokerProcess) -> None:
    produce, create, poll, again, lag, delete, reset = lines_of("## A consumer with curl", "## Streams")
    written = json.loads(typed(produce, broker))["records"][0]["offset"]
    assert json.loads(typed(create, broker))["topics"] == ["hello"]
    batch = json.loads(typed(poll, broker))
    assert batch["records"][-1]["offset"] == written
    assert json.loads(typed(again.replace("ACK", batch["ack"]), broker))["records"] == []
    assert json.loads(typed(lag, broker))["total_lag"] == 0
    assert typed(delete, broker) == ""
    (shown,) = json.loads(typed(reset, broker))["offsets"]
    assert (shown["before"], shown["after"]) == (written + 1, 0)


def test_the_first_command_is_one_that_the_project_has() -> None:
    assert ".venv/bin/pip install . && .venv/bin/sluice\n" in README
    assert "python3 tests/run.py" in README
    assert 'sluice = "app.__main__:main"' in Path(ROOT / "pyproject.toml").read_text()


def test_the_map_names_what_is_there() -> None:
    tree = README[README.index("## The map") : README.index("## Decisions")]
    top = ""
    for indent, name in re.findall(r"^( *)([a-z]+)/ ", tree, re.MULTILINE):
        top = name if not indent else top
        assert (ROOT / (name if not indent else f"{top}/{name}")).is_dir(), name


def test_the_settings_of_topics_are_those_of_the_code() -> None:
    rows = {
        name: set(re.findall(r"`([a-z0-9.]+)[`=]", README.split(f"| **{name}** |")[1].split("\n")[0]))
        for name in ("have an effect", "are stored only", "refused")
    }
    assert rows["refused"] == {"remote.storage.enable"}
    assert rows["are stored only"] == STORED_ONLY - rows["refused"]
    assert rows["have an effect"] == DEFINITIONS.keys() - STORED_ONLY
    shown = int(re.findall(r"show (\d+) settings that have an equivalent", README)[0])
    assert shown == len(DYNAMIC) + len(FIXED)
