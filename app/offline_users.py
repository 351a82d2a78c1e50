"""The users in the data directory of a broker that is stopped: the way back if no user can log in.

The directory is locked meanwhile, as by a broker. A broker of a cluster is refused: all brokers of one have the same
users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from app.commands.errors import CommandError
from core.errors import BrokerError, StartupError
from core.security.scram import Mechanism
from core.security.users import Users
from core.server import stopped_users
from core.vocabulary.users import UserInfo

T = TypeVar("T")


class OfflineUsers:
    """See `app.commands.users.Users`. Each call opens the database, and closes it."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def all(self) -> list[dict[str, Any]]:
        """See `Users.all`."""

        async def work(users: Users) -> list[dict[str, Any]]:
            return [_shown(info) for info in users.all()]

        return self._with(work)

    def create(self, name: str, password: str | None) -> dict[str, Any]:
        """See `Users.create`."""

        async def work(users: Users) -> dict[str, Any]:
            return _shown(await users.create(name, password))

        return self._with(work)

    def set_password(self, name: str, password: str) -> dict[str, Any]:
        """See `Users.set_password`."""

        async def work(users: Users) -> dict[str, Any]:
            return _shown(await users.set_password(name, password))

        return self._with(work)

    def delete(self, name: str) -> None:
        """See `Users.delete`."""
        self._with(lambda users: users.delete(name))

    def _with(self, work: Callable[[Users], Awaitable[T]]) -> T:
        async def opened() -> T:
            async with stopped_users(self._data_dir) as users:
                return await work(users)

        try:
            return asyncio.run(opened())
        except StartupError as error:
            raise CommandError(str(error)) from None
        except BrokerError as error:
            raise CommandError(error.message) from None


def _shown(info: UserInfo) -> dict[str, Any]:
    from app.native.record_json import iso_time

    credentials = [
        {"mechanism": Mechanism(one.mechanism).sasl_name, "iterations": one.iterations}
        for one in info.credentials
    ]
    return {"name": info.name, "created": iso_time(info.created_ms), "credentials": credentials}
