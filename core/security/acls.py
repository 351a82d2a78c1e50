"""Acls: the access rules of the cluster, in the store and in the authorizer."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.acls import put_acls, remove_acls
from core.metadata.store import Store
from core.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType, check_acl
from core.security.authorizer import Authorizer
from core.security.keeper import Keeper

T = TypeVar("T")


class ToTheEnd(Protocol):
    """Carries out changes, one after the other, each to its end though its client may leave."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Carry out one."""
        ...


class Acls:
    """The access rules, as `broker.acls`. Touched on the event loop only.

    `to_the_end` carries out changes: what the store has must be in force as well, though the client has left.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        keeper: Keeper,
        authorizer: Authorizer,
        to_the_end: ToTheEnd,
    ) -> None:
        self._config = config
        self._to_the_end = to_the_end
        self._store = store
        self._keeper = keeper
        self._authorizer = authorizer

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take the rules from the store, as rows of its table."""
        self._authorizer.replace([_acl(row) for row in rows])

    def describe(self, wanted: AclFilter) -> list[Acl]:
        """Return the rules that fit a filter, sorted. Raises SECURITY_DISABLED."""
        self._require_authorizer()
        return self._authorizer.matching(wanted)

    async def create(self, acls: Sequence[Acl]) -> list[BrokerError | None]:
        """Create rules; return the error of each, or None. Durable and in force when it returns.

        To create a rule that exists succeeds. The error of a rule is INVALID_REQUEST, for one that cannot be or one
        too many. Raises SECURITY_DISABLED, NOT_CONTROLLER.
        """
        return await self._to_the_end(self._create(acls))

    async def _create(self, acls: Sequence[Acl]) -> list[BrokerError | None]:
        self._require_authorizer()
        self._keeper.require()
        results: list[BrokerError | None] = []
        new: dict[Acl, None] = {}
        for acl in acls:
            error = None
            try:
                check_acl(acl)
                if acl not in self._authorizer:
                    self._require_space(len(new))
                    new[acl] = None
            except BrokerError as refused:
                error = refused
            results.append(error)
        if new:
            await self._store.submit([put_acls([*map(tuple, new)])])
            self._authorizer.add(new)
        return results

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Delete the rules that fit any of the filters; return those that fit each. Durable and in force then.

        Raises SECURITY_DISABLED, NOT_CONTROLLER.
        """
        return await self._to_the_end(self._delete(filters))

    async def _delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        self._require_authorizer()
        self._keeper.require()
        found = [self._authorizer.matching(wanted) for wanted in filters]
        taken = sorted({acl for fitting in found for acl in fitting})
        if taken:
            await self._store.submit([remove_acls([*map(tuple, taken)])])
            self._authorizer.remove(taken)
        return found

    def _require_authorizer(self) -> None:
        if not self._authorizer.enabled:
            raise BrokerError(
                ErrorCode.SECURITY_DISABLED,
                "No authorizer is configured on this broker. Create a user, or start it with --super-user.",
            )

    def _require_space(self, more: int) -> None:
        if len(self._authorizer) + more >= self._config.max_acls:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"There are {self._config.max_acls} access rules, as many as there may be (max_acls). Delete rules, "
                "or use patterns that cover several names.",
            )


def _acl(row: Sequence[Any]) -> Acl:
    kind, name, pattern, principal, host, operation, permission = row
    return Acl(
        ResourceType(kind),
        name,
        PatternType(pattern),
        principal,
        host,
        Operation(operation),
        Permission(permission),
    )
