"""Users, tokens and passwords over a store in a temporary directory, with a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from core.clock import ManualClock
from core.config import Config
from core.metadata.store import Store
from core.metadata.topics import load_settings
from core.metadata.users import load_users
from core.security.passwords import Passwords
from core.security.tokens import Tokens
from core.security.users import Users


class World:
    """What a broker has of users; `restarted` reads all of it from the store again."""

    def __init__(self, store: Store, config: Config) -> None:
        self.store, self.config, self.clock = store, config, ManualClock()
        self.threads = ThreadPoolExecutor(1)
        self.build(self.clock)

    def build(self, clock: ManualClock) -> None:
        self.users = Users(self.config, clock, self.store, self.threads)
        self.tokens = Tokens(self.config, clock, self.store, self.users)
        self.passwords = Passwords(self.config, clock, self.users, self.tokens, self.threads)

    async def reload(self) -> None:
        users, credentials, tokens = await self.store.read(load_users)
        self.users.load(await self.store.read(load_settings), users, credentials)
        self.tokens.load(tokens)

    async def restart(self) -> None:
        # Other secrets than before, as a process has.
        self.build(ManualClock(self.clock.wall_ms(), seed=7))
        await self.reload()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = Store(tmp_path / "metadata.db")
    await store.open(check=False)
    # The least, as the rounds are not what these tests are about.
    made = World(store, replace(Config(), scram_iterations=4096, max_users=5, max_tokens_per_user=3))
    yield made
    made.threads.shutdown()
    await store.close()
