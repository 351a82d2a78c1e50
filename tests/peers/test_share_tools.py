"""Kafka's own tools for share groups (KIP-932), of Kafka 4.3, against Sluice."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker_process import BrokerProcess
from tests.clients.share.share_member import ShareMember
from tests.clients.wire import Wire
from tests.peers.kafka import Said, Tools

_TOOLS = "org.apache.kafka.tools."
SHARE_GROUPS = _TOOLS + "consumer.group.ShareGroupCommand"
CONSOLE = _TOOLS + "consumer.ConsoleShareConsumer"
GROUP_CONFIG = 32


class World:
    """A topic with six records, and a share group of the same name that begins at its start."""

    def __init__(self, sluice: BrokerProcess, tools: Tools) -> None:
        self.sluice, self.tools = sluice, tools
        self.name = f"share-tools-{uuid.uuid4().hex[:8]}"
        with Wire(sluice.kafka_address) as wire:
            wire.create_topic(self.name)
            for number in range(6):
                wire.write(self.name, f"v{number}")
            start = AlterableConfig("share.auto.offset.reset", 0, "earliest")
            resource = AlterConfigsResource(GROUP_CONFIG, self.name, [start])
            wire.call(44, IncrementalAlterConfigsRequest([resource]), 1)

    def run(self, main: str, *arguments: str) -> Said:
        return self.tools.run(main, *arguments, "--bootstrap-server", self.sluice.kafka)

    def group(self, *arguments: str) -> str:
        """Run kafka-share-groups on the group; return what it says with single spaces."""
        said = self.run(SHARE_GROUPS, *arguments, "--group", self.name)
        return re.sub(r"[ \t]+", " ", f"{said.out}\n{said.err}")

    def consume(self, count: int, *options: str) -> list[str]:
        said = self.run(
            CONSOLE, "--topic", self.name, "--group", self.name, "--max-messages", str(count),
            "--timeout-ms", "20000", *options,
        )  # fmt: skip
        assert said.exit == 0, said
        return said.out.split()


@pytest.fixture(scope="module")
def newer_tools() -> Iterator[Tools]:
    process = Tools("tools-4.3")
    yield process
    process.close()


@pytest.fixture
def world(sluice: BrokerProcess, newer_tools: Tools) -> World:
    return World(sluice, newer_tools)


def test_records_are_read_and_the_group_is_described_moved_and_deleted(world: World) -> None:
    assert world.consume(6) == [f"v{number}" for number in range(6)]
    listed = world.run(SHARE_GROUPS, "--list", "--state")
    assert re.search(rf"{world.name}\s+Empty", listed.out)
    assert re.search(rf"{world.name} \S*.*Empty", world.group("--describe", "--state"))
    assert f"{world.name} {world.name} 0 6" in world.group("--describe", "--offsets")
    moved = world.group("--reset-offsets", "--topic", world.name, "--to-earliest", "--execute")
    assert f"{world.name} 0 0" in moved, moved
    assert f"{world.name} {world.name} 0 0" in world.group("--describe", "--offsets")
    assert world.consume(6) == [f"v{number}" for number in range(6)]
    assert "Successful" in world.group("--delete-offsets", "--topic", world.name)
    assert "successful" in world.group("--delete")
    assert world.name not in world.run(SHARE_GROUPS, "--list").out


def test_the_console_releases_and_rejects(world: World) -> None:
    assert sorted(world.consume(6, "--release")) == [f"v{number}" for number in range(6)]
    assert world.consume(6, "--reject") == [f"v{number}" for number in range(6)]
    assert f"{world.name} {world.name} 0 6" in world.group("--describe", "--offsets")


def test_members_are_described_and_a_group_in_use_is_not_deleted(world: World, sluice: BrokerProcess) -> None:
    member = ShareMember("confluent-kafka", sluice, world.name, world.name)
    try:
        member.wait_for(lambda one: len(one.reads) == 6)
        found = world.group("--describe", "--members")
        assert re.search(rf"{world.name} \S+ /127.0.0.1 rdkafka 1 {world.name}:0", found), found
        assert "GroupNotEmptyException" in world.group("--delete")
        moved = world.group("--reset-offsets", "--topic", world.name, "--to-earliest", "--execute")
        assert "is not empty" in moved, moved
    finally:
        member.kill()


def test_a_missing_group_is_refused(world: World) -> None:
    missing = world.run(SHARE_GROUPS, "--describe", "--group", "no-such-group")
    assert "GroupIdNotFoundException" in missing.out + missing.err
