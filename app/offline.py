"""The users and the access rules in the data directory of a broker that is stopped.

They are the way back if no user can log in, or a rule refuses all users. The directory is locked meanwhile, as by a
broker. A broker of a cluster is refused: all brokers of one have the same users and rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

from app.acl_json import Texts, acl_filter, rule, shown
from app.commands.errors import CommandError
from core.errors import BrokerError, StartupError
from core.security.acls import Acls
from core.security.scram import Mechanism
from core.security.users import Users
from core.server import stopped_acls, stopped_users
from core.vocabulary.users import UserInfo

S = TypeVar("S")
T = TypeVar("T")
Rule = dict[str, str]


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
        return _run(stopped_users(self._data_dir), work)


class OfflineAcls:
    """See `app.commands.acls.Acls`. Each call opens the database, and closes it."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def find(self, wanted: Texts) -> list[Rule]:
        """See `Acls.find`."""

        async def work(acls: Acls) -> list[Rule]:
            return [shown(acl) for acl in acls.describe(acl_filter(wanted))]

        return self._with(work)

    def add(self, rules: Sequence[Texts]) -> list[Rule]:
        """See `Acls.add`."""
        new = [rule(one) for one in rules]

        async def work(acls: Acls) -> list[Rule]:
            for refused in await acls.create(new):
                if refused is not None:
                    raise refused
            return [shown(acl) for acl in sorted(set(new))]

        return self._with(work)

    def remove(self, wanted: Texts, *, dry_run: bool) -> list[Rule]:
        """See `Acls.remove`."""

        async def work(acls: Acls) -> list[Rule]:
            chosen = acl_filter(wanted)
            found = acls.describe(chosen) if dry_run else (await acls.delete([chosen]))[0]
            return [shown(acl) for acl in found]

        return self._with(work)

    def _with(self, work: Callable[[Acls], Awaitable[T]]) -> T:
        return _run(stopped_acls(self._data_dir), work)


def _run(opening: AbstractAsyncContextManager[S], work: Callable[[S], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with opening as stored:
            return await work(stored)

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
