"""Users, tokens and quotas of the facade as one caller may use them. See `core.security.guarded`.

To change users needs ALTER on the cluster, to see them DESCRIBE, as in Kafka (KIP-554). A user may look at itself,
change its own password, and make, see and delete its own tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

from core import facade
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.vocabulary.quotas import Entity, QuotaEntry, QuotaFilter, Quotas
from core.vocabulary.users import TokenInfo, UserInfo

_CLUSTER = ResourceType.CLUSTER


class GuardedUsers:
    """`Facade.users` for one caller."""

    def __init__(self, users: facade.Users, rights: Rights) -> None:
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
        return await self._users.create(name, password)

    async def set_password(self, name: str, password: str) -> UserInfo:
        """See `Users.set_password`: needs ALTER on the cluster, but for the caller itself."""
        if not self._rights.is_user(name):
            self._rights.require(Operation.ALTER, _CLUSTER)
        return await self._users.set_password(name, password)

    async def delete(self, name: str) -> None:
        """See `Users.delete`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        await self._users.delete(name)


class GuardedTokens:
    """`Facade.tokens` for one caller."""

    def __init__(self, tokens: facade.Tokens, rights: Rights) -> None:
        self._tokens = tokens
        self._rights = rights

    def all(self) -> list[TokenInfo]:
        """See `Tokens.all`: with DESCRIBE on the cluster all, else those of the caller."""
        tokens = self._tokens.all()
        if self._rights.may(Operation.DESCRIBE, _CLUSTER):
            return tokens
        return [one for one in tokens if self._rights.is_user(one.owner)]

    async def create(
        self, owner: str, description: str, ttl_ms: int | None, *, expires: bool = True
    ) -> tuple[TokenInfo, str]:
        """See `Tokens.create`: needs ALTER on the cluster, but for a token of the caller."""
        if not self._rights.is_user(owner):
            self._rights.require(Operation.ALTER, _CLUSTER)
        return await self._tokens.create(owner, description, ttl_ms, expires=expires)

    async def delete(self, token_id: str) -> None:
        """See `Tokens.delete`: needs ALTER on the cluster, but for a token of the caller."""
        own = {one.token_id for one in self._tokens.all() if self._rights.is_user(one.owner)}
        if token_id not in own:
            self._rights.require(Operation.ALTER, _CLUSTER)
        await self._tokens.delete(token_id)


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
        return await self._quotas.alter(entity, changes, validate_only=validate_only)

    async def remove(self, entity: Entity) -> None:
        """See `Quotas.remove`: needs ALTER_CONFIGS on the cluster."""
        self._rights.require(Operation.ALTER_CONFIGS, _CLUSTER)
        await self._quotas.remove(entity)
