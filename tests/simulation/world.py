"""What all clients of a run share, and the life of a client in it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from core.config import Config
from tests.simulation.ledger import BrokenPromiseError, Ledger
from tests.simulation.loop import SimLoop
from tests.simulation.machine import Machine
from tests.simulation.rules import Rules
from tests.simulation.streams import GoneError
from tests.simulation.txn_ledger import Transactions

KAFKA_PORT = 9092
TEXT_PORT = 9090
# A client whose last request is not answered after this time of peace waits without an end.
FINISH_SECONDS = 600.0


@dataclass
class World:
    """One run."""

    seed: int
    loop: SimLoop
    machine: Machine
    ledger: Ledger
    trace: Callable[[str], None]
    partitions: dict[str, int]
    closing: bool = False
    # Clients that were answered something after the last fault know that the broker is well again.
    answers: dict[str, int] = field(default_factory=dict)
    # The rights of users, in the runs that have an authorizer.
    rules: Rules | None = None
    # Values of records whose accept a queue has answered.
    accepted: set[bytes] = field(default_factory=set)
    transactions: Transactions = field(default_factory=Transactions)

    @property
    def config(self) -> Config:
        """The broker's settings."""
        return self.machine.config


class Client:
    """Does one thing after another until the run closes. Subclasses say what in `step`."""

    pause = 0.5

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.ledger = world.ledger
        self.chance = random.Random(f"{world.seed} {name}")
        self._count = 0

    async def run(self) -> None:
        """Work until the run closes; what is begun is brought to its end."""
        while not self.world.closing:
            await asyncio.sleep(self.chance.expovariate(1 / self.pause))
            try:
                await self.step()
            except GoneError as error:
                self.say(f"no answer ({error})")
        await self.finish()

    async def step(self) -> None:
        """One thing that this client does. GoneError: its answer did not come."""
        raise NotImplementedError

    async def finish(self) -> None:
        """The last words."""

    def value(self) -> bytes:
        """A value that no other client writes."""
        self._count += 1
        return f"{self.name}.{self._count}".encode()

    def say(self, text: str) -> None:
        """A line of the trace."""
        self.world.trace(f"{self.name}: {text}")

    def did(self, what: str) -> None:
        """Count something that was answered well."""
        self.world.answers[what] = self.world.answers.get(what, 0) + 1

    def broken(self, text: str) -> BrokenPromiseError:
        """A promise was broken towards this client."""
        return BrokenPromiseError(f"{self.name}: {text}")
