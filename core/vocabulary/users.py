"""Users and their tokens, as listeners and surfaces see them: never a password, a key or a secret of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

# How a token begins, so that scanners for secrets recognize it: slc_<id>_<secret>.
TOKEN_PREFIX = "slc_"


class CredentialInfo(NamedTuple):
    """A password of a user under one SCRAM mechanism, by Kafka's number: 1 SHA-256, 2 SHA-512."""

    mechanism: int
    iterations: int


class UserInfo(NamedTuple):
    """A user. Without a credential it can log in with a token alone."""

    name: str
    created_ms: int
    credentials: tuple[CredentialInfo, ...]


class CredentialChange(NamedTuple):
    """A SCRAM credential to set or, without `salted_password`, to remove (KIP-554)."""

    name: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None


class ScopeRule(NamedTuple):
    """What a token may be used for: an operation on resources, by Kafka's numbers, as in an access rule."""

    operation: int
    resource_type: int
    pattern_type: int
    name: str


ScopeRules = tuple[ScopeRule, ...]


class TokenInfo(NamedTuple):
    """A token. `expires_ms` None is never. Without a `scope` it has all rights of its owner."""

    token_id: str
    owner: str
    description: str
    created_ms: int
    expires_ms: int | None
    scope: ScopeRules = ()


class Users(Protocol):
    """Users and their SCRAM credentials, as `broker.users`. Changes raise NOT_CONTROLLER."""

    def all(self) -> list[UserInfo]:
        """Return all users, by name."""

    def get(self, name: str) -> UserInfo:
        """Return the user of that name. Raises RESOURCE_NOT_FOUND."""

    async def create(self, name: str, password: str | None) -> UserInfo:
        """Create a user. Raises DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL, POLICY_VIOLATION."""

    async def set_password(self, name: str, password: str) -> UserInfo:
        """Give a user another password. Raises RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL."""

    async def delete(self, name: str) -> None:
        """Delete a user with credentials and tokens. Raises RESOURCE_NOT_FOUND."""

    async def alter_credentials(self, changes: Sequence[CredentialChange]) -> None:
        """Set and remove SCRAM credentials, all or none. See `core.security.users.Users`."""


class Tokens(Protocol):
    """Tokens of users, as `broker.tokens`. Changes raise NOT_CONTROLLER."""

    def all(self) -> list[TokenInfo]:
        """Return all tokens, expired ones included, the oldest first."""

    async def create(
        self,
        owner: str,
        description: str,
        ttl_ms: int | None,
        *,
        expires: bool = True,
        scope: ScopeRules = (),
    ) -> tuple[TokenInfo, str]:
        """Create a token, and return its text, too. Raises RESOURCE_NOT_FOUND, INVALID_REQUEST, POLICY_VIOLATION."""

    async def delete(self, token_id: str) -> None:
        """Delete a token. Raises RESOURCE_NOT_FOUND."""
