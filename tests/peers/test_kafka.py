"""The peers themselves: a real Kafka starts, its tools run in one JVM, and no node survives its test."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.peers.kafka import KafkaProcess, Tools

TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.mark.parametrize("node", ["kafka", "kafka39"])
def test_a_tool_talks_to_a_real_kafka(request: pytest.FixtureRequest, tools: Tools, node: str) -> None:
    process: KafkaProcess = request.getfixturevalue(node)
    said = tools.run(TOPICS, "--bootstrap-server", process.bootstrap, "--create", "--topic", "first")
    assert said == (0, "Created topic first.\n", "")
    again = tools.run(TOPICS, "--bootstrap-server", process.bootstrap, "--create", "--topic", "first")
    assert again.exit == 1
    assert "Topic 'first' already exists." in again.out


def test_a_tool_reads_its_own_standard_input(kafka: KafkaProcess, tools: Tools) -> None:
    where = ("--bootstrap-server", kafka.bootstrap, "--topic", "typed")
    assert tools.run("org.apache.kafka.tools.ConsoleProducer", *where, text="one\ntwo\n").exit == 0
    options = ("--from-beginning", "--max-messages", "2")
    said = tools.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *options)
    assert said.out == "one\ntwo\n"


def test_a_tool_that_does_not_end_is_told_so(kafka: KafkaProcess, tools: Tools) -> None:
    where = ("--bootstrap-server", kafka.bootstrap, "--topic", "silent")
    said = tools.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *where, seconds=1)
    assert said.exit == -1


def test_a_node_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib; from tests.peers.kafka import KafkaProcess;"
        "node = KafkaProcess(pathlib.Path(sys.argv[1])).start(); print(node.pid, flush=True); time.sleep(600)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert starter.stdout is not None
        node = psutil.Process(int(starter.stdout.readline()))
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.communicate()
    assert node.wait(30) is None or not node.is_running()
