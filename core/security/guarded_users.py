"""Users and tokens of the facade as one caller may use them. See `core.security.guarded`.

To change users needs ALTER on the cluster, to see them DESCRIBE, as in Kafka (KIP-554). A user may look at itself,
change its own password, and make, see and delete its own tokens; a token with a scope may not.
"""

from __future__ import annotations

from core import facade
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.vocabulary.users import ScopeRules, TokenInfo, UserInfo

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
        return await self._tokens.create(owner, description, ttl_ms, expires=expires, scope=scope)

    async def delete(self, token_id: str) -> None:
        """See `Tokens.delete`: needs ALTER on the cluster, but for a token of the caller."""
        own = {one.token_id for one in self._tokens.all() if self._rights.is_user(one.owner)}
        if token_id not in own:
            self._rights.require(Operation.ALTER, _CLUSTER)
        await self._tokens.delete(token_id)
