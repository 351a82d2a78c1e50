"""Users and their tokens, as listeners and surfaces see them: never a password, a key or a secret of one."""

from __future__ import annotations

from typing import NamedTuple

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
