"""A topic with numbered records, a group, and its members: what tests of real clients in groups share."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Any

import httpx

from tests.broker_process import BrokerProcess
from tests.clients.members.member import Member
from tests.clients.wire import Wire

PARTITIONS = 6


class World:
    """A topic with numbered records, a group, and its members."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.topic = f"numbers-{uuid.uuid4().hex[:8]}"
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.written = 0
        self.members: list[Member] = []
        self.gone: list[Member] = []
        # Members started and ended, and what was seen of the group, each with its time: for a failing test.
        self.diary: list[tuple[float, str]] = []
        self.http = httpx.Client(base_url=f"{broker.http}/api/v1", timeout=30, trust_env=False)
        with Wire(broker.kafka_address) as wire:
            wire.create_topic(self.topic, partitions=PARTITIONS)

    def write(self, count: int) -> None:
        """Append `count` more numbers, spread over the partitions."""
        with Wire(self.broker.kafka_address) as wire:
            for _ in range(count):
                wire.write(self.topic, str(self.written), partition=self.written % PARTITIONS)
                self.written += 1

    def join(
        self,
        kind: str,
        strategy: str = "roundrobin",
        *,
        protocol: str = "classic",
        instance: str = "",
        topic: str = "",
    ) -> Member:
        """Start a member. `topic` is what it subscribes to; the topic of the group if empty."""
        member = Member(
            kind, self.broker, self.group, topic or self.topic, strategy, protocol=protocol, instance=instance
        )
        self.members.append(member)
        self.diary.append((time.monotonic(), f"{member.name} starts"))
        return member

    def end(self, member: Member, how: str) -> None:
        """Let a member leave, or kill it."""
        self.members.remove(member)
        self.gone.append(member)
        self.diary.append((time.monotonic(), f"{member.name}: {how}"))
        getattr(member, how)()
        self.diary.append((time.monotonic(), f"{member.name} has ended"))

    def numbers_read(self) -> list[int]:
        """All that any member has read, again and again where it was delivered again."""
        return [int(value) for member in [*self.members, *self.gone] for _, _, value in list(member.reads)]

    def committed(self) -> dict[int, int]:
        """The group's committed positions."""
        answer = self.http.get(f"/groups/{self.group}/offsets")
        return {one["partition"]: one["next_offset"] for one in answer.raise_for_status().json()["offsets"]}

    def described(self) -> dict[str, Any]:
        """The group as REST shows it; empty where there is none yet."""
        answer = self.http.get(f"/groups/{self.group}")
        return {} if answer.status_code == 404 else dict(answer.raise_for_status().json())

    def wait_until_all_is_read(self, seconds: float = 60) -> None:
        """Wait until every number was read by a member and committed."""
        deadline = time.monotonic() + seconds
        expected = set(range(self.written))
        while not (expected <= set(self.numbers_read()) and sum(self.committed().values()) == self.written):
            if time.monotonic() > deadline:
                raise AssertionError(self._what_is_missing(expected - set(self.numbers_read())))
            time.sleep(0.1)

    def _what_is_missing(self, missing: set[int]) -> str:
        ends = {partition: len(range(partition, self.written, PARTITIONS)) for partition in range(PARTITIONS)}
        told = [
            f"{len(missing)} never read, as {sorted(missing)[:5]}; committed {self.committed()} of {ends}"
        ]
        if missing:
            partition, offset = min(missing) % PARTITIONS, min(missing) // PARTITIONS
            everyone = [*self.gone, *self.members]
            story = sorted(
                [*self.diary, *(event for member in everyone for event in member.story(partition))]
            )
            read_before = [i for i, (_, text) in enumerate(story) if text.endswith(f" read {offset - 1}")]
            at = max(read_before, default=0)
            told.append(f"around offset {offset} of partition {partition}:")
            told += [f"{moment:.3f} {text}" for moment, text in story[max(0, at - 10) : at + 40]]
        return "\n".join(told)

    def close(self) -> None:
        """End every member."""
        for member in list(self.members):
            with contextlib.suppress(AssertionError):
                self.end(member, "kill")
        self.http.close()
