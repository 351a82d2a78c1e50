"""The access rules in the data directory of a broker that is stopped: the way back if a rule refuses all users.

The directory is locked meanwhile, as by a broker. A broker of a cluster is refused, as in `app.offline_users`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from app.acl_json import Texts, acl_filter, rule, shown
from app.commands.errors import CommandError
from core.broker.acls import Acls
from core.errors import BrokerError, StartupError
from core.server import stopped_acls

T = TypeVar("T")
Rule = dict[str, str]


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
        async def opened() -> T:
            async with stopped_acls(self._data_dir) as acls:
                return await work(acls)

        try:
            return asyncio.run(opened())
        except StartupError as error:
            raise CommandError(str(error)) from None
        except BrokerError as error:
            raise CommandError(error.message) from None
