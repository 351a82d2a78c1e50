"""Verify access tokens of other issuers: signed JSON Web Tokens (RFC 7519, RFC 8725, RFC 9068).

A token is taken if all of this holds; nothing in it is believed before:

- it has a signature of a key of a configured issuer, by an algorithm that the settings list for that issuer;
- `iss` is the issuer, and `aud` has one of the configured audiences;
- `exp` and `iat` are there; `exp`, `iat` and `nbf` hold with 30 s for clocks that differ;
- its type is an access token's, as far as it can be told: `typ` is `at+jwt`, `JWT` or missing, and there is nothing
  that ID, refresh and logout tokens have;
- it is not bound to a key or certificate of its client (`cnf`), because that is not checked here.

Header members that bring or name keys (`jwk`, `jku`, `x5c`, `x5u`) and `crit` are refused. A token that was verified
is remembered by its SHA-256 until it expires, for at most 5 minutes: until then a key that its issuer has withdrawn
still counts.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import importlib
import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from core.clock import Clock
from core.config import JwtIssuer
from core.errors import BrokerError, ErrorCode
from core.security.jwks import Jwks, PublicKey
from core.security.principal import ANONYMOUS, Principal

log = logging.getLogger(__name__)

LEEWAY_SECONDS = 30
# Longer ones are not looked at. Those of directories with hundreds of roles have 6 KiB.
MAX_TOKEN = 16 * 1024
_MAX_NAME = 255
_CACHE_SECONDS = 300.0
_MAX_CACHED = 10_000
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_REFUSED_HEADERS = ("crit", "b64", "jwk", "jku", "x5c", "x5u", "zip", "enc")
# Claims of tokens for other purposes: ID tokens (OpenID Connect), logout tokens, tokens bound to a key (RFC 7800).
_REFUSED_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash", "events", "cnf")
# Not in the standards: Keycloak has the purpose of a token in the claim `typ`, Cognito in `token_use`.
_PURPOSES = (("typ", frozenset({"bearer"})), ("token_use", frozenset({"access"})))


class VerifiedToken(NamedTuple):
    """The principal of a token, and until when it is taken: milliseconds of the epoch, after now."""

    principal: Principal
    expires_ms: int


class _RefusedError(Exception):
    """The token is refused. The reason is for the log alone."""


class JwtVerifier:
    """Verifies tokens of some issuers. All methods are called on the event loop."""

    def __init__(self, issuers: Sequence[JwtIssuer], clock: Clock) -> None:
        self._issuers = {one.issuer: (one, Jwks(one, clock)) for one in issuers}
        self._clock = clock
        # By the SHA-256 of the token: the result, and until when it is believed, in seconds of the monotonic clock.
        self._verified: dict[bytes, tuple[VerifiedToken, float]] = {}
        self._library: Any = None

    async def verify(self, token: str) -> VerifiedToken:
        """Return whose token it is. Raises SASL_AUTHENTICATION_FAILED, with one text for all reasons."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._verified.get(digest)
        if known is not None:
            if self._clock.monotonic() < known[1] and self._clock.wall_ms() < known[0].expires_ms:
                return known[0]
            del self._verified[digest]
        try:
            found = await self._verify(token)
        except _RefusedError as reason:
            log.info("a token was refused: %s", reason)
            raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, "The token is not valid.") from None
        if len(self._verified) >= _MAX_CACHED:
            self._verified.clear()
        self._verified[digest] = (found, self._clock.monotonic() + _CACHE_SECONDS)
        return found

    async def verify_id_token(self, token: str, issuer: str, client_id: str, nonce: str) -> VerifiedToken:
        """Return whose ID token it is, of a login that the broker began as `client_id` with `nonce`.

        It is checked as OpenID Connect Core 1.0, 3.1.3.7 has it, and never taken as an access token. Raises
        SASL_AUTHENTICATION_FAILED, with one text for all reasons.
        """
        try:
            claims, found = await self._claims(token, (client_id,))
            if found.issuer != issuer:
                raise _RefusedError("it is of another issuer")
            self._check_times(claims)
            _check_id_token(claims, client_id, nonce)
            return VerifiedToken(_principal(claims, found), int(claims["exp"] * 1000))
        except _RefusedError as reason:
            log.info("an ID token was refused: %s", reason)
            raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, "The token is not valid.") from None

    async def _verify(self, token: str) -> VerifiedToken:
        claims, issuer = await self._claims(token, None)
        self._check_times(claims)
        _check_purpose(claims)
        expires_ms = int(claims["exp"] * 1000)
        if expires_ms <= self._clock.wall_ms():
            # The clock of its issuer may be slower.
            expires_ms += LEEWAY_SECONDS * 1000
        return VerifiedToken(_principal(claims, issuer), expires_ms)

    async def _claims(self, token: str, audience: Sequence[str] | None) -> tuple[dict[str, Any], JwtIssuer]:
        """Return the claims of a token for an audience, by default that of its issuer's settings, and the issuer."""
        if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            raise _RefusedError("it has not the form of a signed JWT")
        header, payload, _ = token.split(".")
        algorithm, key_id = _of_header(_decoded(header))
        named = _decoded(payload).get("iss")
        if not isinstance(named, str) or named not in self._issuers:
            raise _RefusedError(f"its issuer {str(named)[:200]!r} is not configured")
        issuer, keys = self._issuers[named]
        if algorithm not in issuer.algorithms:
            raise _RefusedError(f"the algorithm {algorithm[:20]!r} is not one of its issuer's")
        if self._library is None:
            # In a thread, because cryptography takes 100 ms to load.
            self._library = await asyncio.to_thread(importlib.import_module, "jwt")
        key = await keys.find(key_id)
        if key is None:
            raise _RefusedError(f"its issuer has no key {str(key_id)[:100]!r}")
        wanted = issuer.audience if audience is None else audience
        return self._signed(token, key, algorithm, issuer, wanted), issuer

    def _signed(
        self, token: str, key: PublicKey, algorithm: str, issuer: JwtIssuer, audience: Sequence[str]
    ) -> dict[str, Any]:
        """Return the claims of a token whose signature, issuer and audience are right."""
        if algorithm not in key.algorithms:
            raise _RefusedError(f"the algorithm {algorithm!r} is not one of its key")
        jwt = self._library
        try:
            claims: dict[str, Any] = jwt.decode(
                token, key.key, algorithms=[algorithm], audience=list(audience), issuer=issuer.issuer,
                # Times are checked here, by the clock of the broker.
                options={
                    "require": ["exp", "iat", "iss", "aud"], "verify_exp": False, "verify_nbf": False,
                    "verify_iat": False, "verify_sub": False, "verify_jti": False,
                },
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise _RefusedError(f"{type(error).__name__}: {str(error)[:200]!r}") from None
        return claims

    def _check_times(self, claims: dict[str, Any]) -> None:
        now = self._clock.wall_ms() / 1000
        for name in ("exp", "iat", "nbf"):
            value = claims.get(name)
            if value is None and name == "nbf":
                continue
            # No later than the year 9999: what computes with it must not overflow.
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value < 253_402_300_800
            ):
                raise _RefusedError(f"its {name} is no time")
            if name == "exp" and now >= value + LEEWAY_SECONDS:
                raise _RefusedError("it has expired")
            if name != "exp" and now < value - LEEWAY_SECONDS:
                raise _RefusedError(f"its {name} is in the future")


def _decoded(part: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise _RefusedError("it has a part that is not JSON") from None
    if not isinstance(value, dict):
        raise _RefusedError("it has a part that is no JSON object")
    return value


def _of_header(header: dict[str, Any]) -> tuple[str, str | None]:
    """Return algorithm and key id."""
    for name in _REFUSED_HEADERS:
        if name in header:
            raise _RefusedError(f"its header has {name!r}")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise _RefusedError(f"its type is {str(kind)[:50]!r}")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not (key_id is None or isinstance(key_id, str)):
        raise _RefusedError("its header has no alg, or a kid that is no text")
    return algorithm, key_id


def _check_purpose(claims: dict[str, Any]) -> None:
    for name in _REFUSED_CLAIMS:
        if name in claims:
            raise _RefusedError(f"it has {name!r}, as tokens for other purposes")
    for name, allowed in _PURPOSES:
        if name in claims and str(claims[name]).lower() not in allowed:
            raise _RefusedError(f"its {name} is {str(claims[name])[:50]!r}")


def _check_id_token(claims: dict[str, Any], client_id: str, nonce: str) -> None:
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise _RefusedError("its nonce is that of another login")
    audience, party = claims["aud"], claims.get("azp")
    several = isinstance(audience, list) and len(audience) > 1
    if (party is not None or several) and party != client_id:
        raise _RefusedError(f"it is for {str(party)[:200]!r}")
    if "events" in claims:
        raise _RefusedError("it is a logout token")


def _principal(claims: dict[str, Any], issuer: JwtIssuer) -> Principal:
    value = claims.get(issuer.principal_claim)
    if not isinstance(value, str) or not value:
        raise _RefusedError(f"it has no text {issuer.principal_claim!r}")
    name = issuer.principal_prefix + value
    if (
        len(name) > _MAX_NAME
        or not name.isprintable()
        or name != name.strip()
        or name in ("*", ANONYMOUS.name)
    ):
        raise _RefusedError(f"its {issuer.principal_claim} cannot be the name of a user")
    return Principal(name=name)
