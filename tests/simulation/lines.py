"""Clients that say lines: one that writes, and members of a group whose rounds the broker joins in their name."""

from __future__ import annotations

import asyncio

from tests.clients.line import Answer, read_answer
from tests.simulation.members import SURELY_ALIVE_SECONDS, TOPICS
from tests.simulation.streams import GoneError, Stream
from tests.simulation.world import TEXT_PORT, Client, World

# Passing errors: ask again.
AGAIN = {
    "KAFKA_STORAGE_ERROR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
}
HEARTBEAT_SECONDS = 4.0


class LineStream(Stream):
    """Lines, one at a time."""

    _count = 0

    async def call(self, command: str, args: str, timeout: float = 20.0) -> Answer:
        """The answer to a command. Raises GoneError."""
        self._count += 1
        line = b""
        try:
            async with asyncio.timeout(timeout):
                transport = await self.open()
                transport.write(f"V1|{self._count}|{command}|{args}\n".encode())
                while not line.endswith(b"\n"):
                    line += await self.some()
        except (GoneError, TimeoutError) as error:
            self.close()
            raise GoneError(str(error)) from None
        answer = read_answer(line)
        assert answer.correlation_id == str(self._count), "an answer to another line"
        return answer


class LineWriter(Client):
    """Writes messages with acks=all, each with a key or without, and does not write one again."""

    pause = 0.5

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = LineStream(world.machine.network, TEXT_PORT)

    async def step(self) -> None:
        """One message."""
        value, key = self.value(), self.chance.choice(("", "a", "b", "c"))
        topic = self.chance.choice(TOPICS)
        answer = await self.stream.call("PRODUCE", f"{topic} {key}:{value.decode()} acks=all")
        if answer.code in AGAIN:
            return
        if answer.code:
            raise self.broken(f"PRODUCE: {answer}")
        partition, offset = answer.number("partition"), answer.number("offset")
        self.ledger.acknowledged(topic, partition, offset, value, durable=True, once=True)
        self.did("line")


class LineMember(Client):
    """A member of the group `lines`, which is of one topic: joins, consumes, commits, beats."""

    group = "lines"
    topic = TOPICS[0]
    pause = 0.4

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = LineStream(world.machine.network, TEXT_PORT)
        self.generation = -1
        self.positions: dict[int, int] = {}
        self._heard = -1e9

    async def step(self) -> None:
        """Join if need be; otherwise one line of a member."""
        if self.chance.random() < 0.02:
            # Long enough, at times, to be forgotten; the others may not have waited for this member.
            await asyncio.sleep(self.chance.uniform(3, 100))
        if self.generation < 0:
            await self._join()
        elif self.world.loop.now - self._heard > HEARTBEAT_SECONDS and self.chance.random() < 0.7:
            await self._speak(self.chance.choice(("HEARTBEAT", "SYNC")), "")
        elif self.chance.random() < 0.6:
            await self._consume()
        elif self.chance.random() < 0.9:
            await self._commit()
        elif self.chance.random() < 0.2:
            # Whatever is answered, it may have left.
            self._heard = -1e9
            if await self._speak("LEAVE", ""):
                self.generation, self.positions = -1, {}

    async def _join(self) -> None:
        asked = self.world.loop.now
        answer = await self.stream.call("JOIN", f"{self.group} {self.topic} {self.name}", timeout=60)
        if answer.code in AGAIN or answer.code == "GENERATION_MISMATCH":
            return
        if answer.code:
            raise self.broken(f"JOIN: {answer}")
        generation, owned = answer.number("generation"), answer.numbers("assigned")
        self._heard = asked
        for partition in owned:
            self.ledger.owns(self.group, generation, self.topic, partition, self.name)
        positions = {}
        for partition in owned:
            claim = (self.group, self.topic, partition)
            known = self.ledger.committed.get(claim, -1)
            answer = await self.stream.call("OFFSET", f"{self.group} {self.topic} {partition}")
            if answer.code in AGAIN:
                return
            self.ledger.check_committed(claim, known, answer.number("offset"), self.name)
            positions[partition] = max(0, answer.number("offset"))
        self.generation, self.positions = generation, positions
        self.say(f"generation {generation}: {positions}")
        self.did("line join")

    async def _speak(self, command: str, more: str) -> bool:
        """A line that names the generation; whether it was taken."""
        newest, asked = self.ledger.generations[self.group], self.world.loop.now
        args = f"{self.group} {self.topic} {self.name} {self.generation}{more}"
        answer = await self.stream.call(command, args)
        if answer.code in AGAIN:
            return False
        if answer.code == "GENERATION_MISMATCH":
            silent = asked - self._heard
            if "UNKNOWN_MEMBER_ID" in answer.payload and silent < SURELY_ALIVE_SECONDS:
                raise self.broken(f"was forgotten {silent:.1f} s after a line was answered")
            self.say(f"generation {self.generation} is over ({answer.payload})")
            self.generation, self.positions = -1, {}
            return False
        if answer.code:
            raise self.broken(f"{command}: {answer}")
        self._heard = asked
        self.ledger.fenced_member_spoke(self.group, self.generation, newest, f"a {command}")
        return True

    async def _consume(self) -> None:
        if not self.positions:
            return
        partition = self.chance.choice(sorted(self.positions))
        position = self.positions[partition]
        answer = await self.stream.call("CONSUME", f"{self.topic} {partition} {position}")
        if answer.code in AGAIN:
            return
        if answer.code:
            raise self.broken(f"CONSUME @{position}: {answer}")
        for offset, value in answer.messages():
            if offset != self.positions[partition]:
                raise self.broken(f"{self.topic}-{partition}: {offset} follows {self.positions[partition]}")
            self.ledger.saw(self.topic, partition, offset, value, "a CONSUME")
            self.positions[partition] = offset + 1

    async def _commit(self) -> None:
        due = [
            (partition, at)
            for partition, at in self.positions.items()
            if at > self.ledger.committed.get((self.group, self.topic, partition), 0)
        ]
        if due:
            partition, at = self.chance.choice(due)
            claim = (self.group, self.topic, partition)
            self.ledger.will_commit(claim, at)
            if await self._speak("COMMIT", f" {partition} {at}"):
                self.ledger.was_committed(claim, at)
                self.did("line commit")
