"""Users, tokens, access rules and quotas of the facade as one caller may use them. See `core.security.guarded`.

To change them needs ALTER on the cluster, to see them DESCRIBE, as in Kafka (KIP-140, KIP-554). A user may look at
itself, change its own password, and make, see and delete its own tokens; a token with a scope may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from core import facade
from core.errors import BrokerError, ErrorCode
from core.security.acl import Acl, AclFilter, Operation, ResourceType
from core.security.authorizer import Rights, acl_text
from core.vocabulary.freeze import FreezeState, Freezing
from core.vocabulary.quotas import Entity, QuotaEntry, QuotaFilter, Quotas
from core.vocabulary.users import CredentialChange, ScopeRules, TokenInfo, Tokens, UserInfo, Users

_CLUSTER = ResourceType.CLUSTER


class GuardedUsers:
    """`Facade.users` for one caller."""

    def __init__(self, users: Users, rights: Rights) -> None:
        self._users = users
        self._rights = rights

    def all(self) -> list[UserInfo]:
        """See `Users.all`: needs DESCRIBE on the cluster."""
        self._rights.require(Operation.DESCRIBE, _CLUSTER)
        return self._users.all()

    def get(self, name: str) -> UserInfo:
        """See `Users.get`: needs DESCRIBE on the cluster, but for the caller itself."""
        if not self._rights.is_user(name):
            self._rights.require(Operation.DESCRIBE, _CLUSTER)
        return self._users.get(name)

    async def create(self, name: str, password: str | None) -> UserInfo:
        """See `Users.create`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        return await self._rights.noted("CREATE_USER", f"USER:{name}", self._users.create(name, password))

    async def set_password(self, name: str, password: str) -> UserInfo:
        """See `Users.set_password`: needs ALTER on the cluster, but for the caller itself."""
        if not self._rights.is_user(name):
            self._rights.require(Operation.ALTER, _CLUSTER)
        return await self._rights.noted(
            "SET_PASSWORD", f"USER:{name}", self._users.set_password(name, password)
        )

    async def delete(self, name: str) -> None:
        """See `Users.delete`: needs ALTER on the cluster. Raises POLICY_VIOLATION for the last super user."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        self._keep_an_administrator({name})
        await self._rights.noted("DELETE_USER", f"USER:{name}", self._users.delete(name))

    async def alter_credentials(self, changes: Sequence[CredentialChange]) -> None:
        """See `Users.alter_credentials`: needs ALTER on the cluster. Raises POLICY_VIOLATION as `delete` does."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        left = {(one.name, had.mechanism) for one in self._users.all() for had in one.credentials}
        for change in changes:
            if change.salted_password is None:
                left.discard((change.name, change.mechanism))
            else:
                left.add((change.name, change.mechanism))
        # As in `Users.alter_credentials`, a user without any credential is deleted.
        self._keep_an_administrator({one.name for one in changes} - {name for name, _ in left})
        names = ", ".join(sorted({one.name for one in changes}))
        await self._rights.noted("ALTER_CREDENTIALS", f"USER:{names}", self._users.alter_credentials(changes))

    def _keep_an_administrator(self, gone: set[str]) -> None:
        users = {one.name for one in self._users.all()}
        if gone & users and self._rights.loses_administrators(users, gone):
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"{', '.join(sorted(gone & users))} is the last super user that can log in. Create another one, "
                "or stop the broker and use sluice users --data-dir.",
            )


class GuardedTokens:
    """`Facade.tokens` for one caller."""

    def __init__(self, tokens: Tokens, rights: Rights) -> None:
        self._tokens = tokens
        self._rights = rights

    def all(self) -> list[TokenInfo]:
        """See `Tokens.all`: with DESCRIBE on the cluster all, else those of the caller."""
        tokens = self._tokens.all()
        if self._rights.may(Operation.DESCRIBE, _CLUSTER):
            return tokens
        return [one for one in tokens if self._rights.is_user(one.owner)]

    async def create(
        self,
        owner: str,
        description: str,
        ttl_ms: int | None,
        *,
        expires: bool = True,
        scope: ScopeRules = (),
    ) -> tuple[TokenInfo, str]:
        """See `Tokens.create`: needs ALTER on the cluster, but for a token of the caller."""
        if not self._rights.is_user(owner):
            self._rights.require(Operation.ALTER, _CLUSTER)
        creating = self._tokens.create(owner, description, ttl_ms, expires=expires, scope=scope)
        return await self._rights.noted("CREATE_TOKEN", f"USER:{owner}", creating)

    async def delete(self, token_id: str) -> None:
        """See `Tokens.delete`: needs ALTER on the cluster, but for a token of the caller."""
        own = {one.token_id for one in self._tokens.all() if self._rights.is_user(one.owner)}
        if token_id not in own:
            self._rights.require(Operation.ALTER, _CLUSTER)
        await self._rights.noted("DELETE_TOKEN", f"TOKEN:{token_id}", self._tokens.delete(token_id))


class GuardedQuotas:
    """`Facade.quotas` for one caller."""

    def __init__(self, quotas: Quotas, rights: Rights) -> None:
        self._quotas = quotas
        self._rights = rights

    def describe(self, wanted: QuotaFilter) -> list[QuotaEntry]:
        """See `Quotas.describe`: needs DESCRIBE_CONFIGS on the cluster."""
        self._rights.require(Operation.DESCRIBE_CONFIGS, _CLUSTER)
        return self._quotas.describe(wanted)

    async def alter(
        self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> Mapping[str, float]:
        """See `Quotas.alter`: needs ALTER_CONFIGS on the cluster."""
        self._rights.require(Operation.ALTER_CONFIGS, _CLUSTER)
        altering = self._quotas.alter(entity, changes, validate_only=validate_only)
        return await (
            altering if validate_only else self._rights.noted("ALTER_QUOTAS", _entity_text(entity), altering)
        )

    async def remove(self, entity: Entity) -> None:
        """See `Quotas.remove`: needs ALTER_CONFIGS on the cluster."""
        self._rights.require(Operation.ALTER_CONFIGS, _CLUSTER)
        await self._rights.noted("DELETE_QUOTAS", _entity_text(entity), self._quotas.remove(entity))


def _entity_text(entity: Entity) -> str:
    return "QUOTA:" + ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


class Acls(Protocol):
    """The access rules, as `broker.acls`. Without an authorizer all raise SECURITY_DISABLED."""

    def describe(self, wanted: AclFilter) -> list[Acl]:
        """Return the rules that fit a filter, sorted."""

    async def create(self, acls: Sequence[Acl]) -> list[BrokerError | None]:
        """Create rules; return the error of each, or None. Durable and in force then. Raises NOT_CONTROLLER."""

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Delete the rules that fit any of the filters; return those of each. Raises NOT_CONTROLLER."""


class Ruled(facade.Facade, Protocol):
    """A broker with access rules."""

    @property
    def acls(self) -> Acls:
        """The access rules."""


class GuardedAcls:
    """The access rules as one caller may see and change them."""

    def __init__(self, acls: Acls, rights: Rights) -> None:
        self._acls = acls
        self._rights = rights

    def describe(self, wanted: AclFilter) -> list[Acl]:
        """See `Acls.describe`: needs DESCRIBE on the cluster."""
        self._rights.require(Operation.DESCRIBE, _CLUSTER)
        return self._acls.describe(wanted)

    async def create(self, acls: Sequence[Acl]) -> list[BrokerError | None]:
        """See `Acls.create`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        results = await self._acls.create(acls)
        for acl, error in zip(acls, results, strict=True):
            self._rights.note("CREATE_ACL", acl_text(acl), "" if error is None else error.code.name)
        return results

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """See `Acls.delete`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        found = await self._acls.delete(filters)
        for acl in sorted({acl for fitting in found for acl in fitting}):
            self._rights.note("DELETE_ACL", acl_text(acl))
        return found


class GuardedFreezing:
    """`Facade.freezing` for one caller."""

    def __init__(self, freezing: Freezing, rights: Rights) -> None:
        self._freezing = freezing
        self._rights = rights

    @property
    def state(self) -> FreezeState:
        """See `Freezing.state`. It needs no right: each write that is refused says the same."""
        return self._freezing.state

    async def freeze(self) -> FreezeState:
        """See `Freezing.freeze`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        return await self._rights.noted("FREEZE", "CLUSTER:kafka-cluster", self._freezing.freeze())

    async def thaw(self) -> FreezeState:
        """See `Freezing.thaw`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        return await self._rights.noted("THAW", "CLUSTER:kafka-cluster", self._freezing.thaw())
