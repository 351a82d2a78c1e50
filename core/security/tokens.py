"""Tokens of users: `slc_<id>_<secret>`, of which only a digest of the secret is kept.

A client with a token acts as its owner: by a bearer token over HTTP, or as the password of SASL/PLAIN. The secret has
256 random bits, so that a plain digest cannot be guessed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.groups import Row
from core.metadata.store import Store
from core.metadata.users import put_token, remove_tokens
from core.security.scopes import check_scope, decode, encode
from core.security.users import Users
from core.vocabulary.users import TOKEN_PREFIX, ScopeRules, TokenInfo

_TOKEN = re.compile(rf"{TOKEN_PREFIX}([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")
_NEVER = -1
MAX_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class _Token:
    info: TokenInfo
    digest: bytes


class Tokens:
    """The tokens of all users of one broker, in memory and in SQLite. All methods are called on the event loop."""

    def __init__(self, config: Config, clock: Clock, store: Store, users: Users) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._users = users
        self._tokens: dict[str, _Token] = {}
        self._when_deleted: list[Callable[[TokenInfo], None]] = []
        users.when_deleted(self._owner_deleted)

    def when_deleted(self, call: Callable[[TokenInfo], None]) -> None:
        """Have `call` called with each token that is deleted from now on, but for those whose owner is."""
        self._when_deleted.append(call)

    def load(self, rows: Sequence[Row]) -> None:
        """Take over what the store has."""
        before, self._tokens = self._tokens, {}
        for token_id, owner, description, digest, created_ms, expires_ms, scope in rows:
            expires = None if expires_ms == _NEVER else expires_ms
            self._tokens[token_id] = _Token(
                TokenInfo(token_id, owner, description, created_ms, expires, decode(scope)), digest
            )
        for token_id, one in before.items():
            if token_id not in self._tokens:
                self._tell(one.info)

    def _tell(self, deleted: TokenInfo) -> None:
        for call in self._when_deleted:
            call(deleted)

    def all(self) -> list[TokenInfo]:
        """Return all tokens, expired ones included, the oldest first."""
        return sorted(
            (one.info for one in self._tokens.values()), key=lambda info: (info.created_ms, info.token_id)
        )

    def owner_of(self, text: str) -> TokenInfo | None:
        """Return the token that a client has sent, if it is one, has not expired and its owner exists."""
        found = _TOKEN.fullmatch(text)
        if found is None:
            return None
        one = self._tokens.get(found[1])
        right = hmac.compare_digest(_digest(found[2]), one.digest if one is not None else bytes(32))
        if one is None or not right or one.info.owner not in self._users:
            return None
        expires = one.info.expires_ms
        return None if expires is not None and expires <= self._clock.wall_ms() else one.info

    def holds(self, token_id: str) -> bool:
        """Return whether a token of that id has not been deleted."""
        return token_id in self._tokens

    def _owner_deleted(self, owner: str) -> None:
        self._tokens = {k: one for k, one in self._tokens.items() if one.info.owner != owner}

    async def create(
        self,
        owner: str,
        description: str,
        ttl_ms: int | None,
        *,
        expires: bool = True,
        scope: ScopeRules = (),
    ) -> tuple[TokenInfo, str]:
        """Create a token; return it and its text, which is not kept, once it is durable.

        `ttl_ms` None means `token_ttl_ms` of the settings. Without `expires` it never expires. Of the rights of its
        owner it has those that `scope` lists; without a scope it has all. Raises RESOURCE_NOT_FOUND,
        INVALID_REQUEST, POLICY_VIOLATION (too many tokens), NOT_CONTROLLER.
        """
        return await self._users.to_the_end(self._create(owner, description, ttl_ms, expires, scope))

    async def delete(self, token_id: str) -> None:
        """Delete a token; from now on it is not valid. Raises RESOURCE_NOT_FOUND, NOT_CONTROLLER."""
        await self._users.to_the_end(self._delete(token_id))

    async def _create(
        self, owner: str, description: str, ttl_ms: int | None, expires: bool, scope: ScopeRules
    ) -> tuple[TokenInfo, str]:
        self._users.get(owner)
        if len(description) > MAX_DESCRIPTION or not description.isprintable():
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"The description of a token has at most {MAX_DESCRIPTION} characters and no control characters.",
            )
        check_scope(scope)
        held = sum(one.info.owner == owner for one in self._tokens.values())
        if held >= self._config.max_tokens_per_user:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION, f"{owner!r} has {held} tokens already; delete some first."
            )
        now = self._clock.wall_ms()
        expires_ms = now + (self._config.token_ttl_ms if ttl_ms is None else ttl_ms) if expires else None
        token_id = self._clock.secret_bytes(6).hex()
        info = TokenInfo(token_id, owner, description, now, expires_ms, scope)
        secret = base64.urlsafe_b64encode(self._clock.secret_bytes(32)).rstrip(b"=").decode()
        one = _Token(info, _digest(secret))
        stored = _NEVER if expires_ms is None else expires_ms
        row = (info.token_id, owner, description, one.digest, now, stored, encode(scope))
        await self._store.submit([put_token(row)])
        self._tokens[info.token_id] = one
        return info, f"{TOKEN_PREFIX}{info.token_id}_{secret}"

    async def _delete(self, token_id: str) -> None:
        if token_id not in self._tokens:
            raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no token {token_id[:20]!r}.")
        await self._store.submit([remove_tokens([token_id])])
        # The owner may have been deleted meanwhile, and the token with it.
        deleted = self._tokens.pop(token_id, None)
        if deleted is not None:
            self._tell(deleted.info)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
