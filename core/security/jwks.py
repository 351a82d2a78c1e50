"""Fetch the public keys of an issuer of tokens, and keep them (RFC 7517, OpenID Connect Discovery 1.0).

Addresses come from the settings alone, never from a token. They are `https`, or `http` on loopback. A redirect is not
followed. Without the setting `jwks_uri` the issuer's discovery document names the address of the keys, which must be
of the issuer's own origin. A fetch takes at most 5 s and 256 KiB in all; a document that is compressed is refused.

Keys are fetched when the first token needs them, each hour, and for a token with an unknown key id, at most each
30 s. If a fetch fails, the keys of the last one remain.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from core.clock import Clock
from core.config import JwtIssuer

log = logging.getLogger(__name__)

DISCOVERY = "/.well-known/openid-configuration"
FETCH_SECONDS = 5.0
MAX_BYTES = 256 * 1024
# Kafka's sasl.oauthbearer.jwks.endpoint.refresh.ms.
_REFRESH_SECONDS = 3_600.0
_UNKNOWN_KEY_SECONDS = 30.0
# Without any key each token is refused, so that an issuer that starts after the broker is asked again sooner.
_NO_KEY_SECONDS = 5.0
_MAX_KEYS = 100
_MIN_RSA_BITS = 2_048

# Algorithms by what a key is: its `kty`, and its `crv` if it has one. HMAC and `none` are not among them: a public
# key must never be used as a shared secret.
ALGORITHMS: Mapping[tuple[str, str], frozenset[str]] = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}


class JwksError(Exception):
    """The keys of an issuer could not be fetched."""


class PublicKey:
    """A key of an issuer, and the algorithms that it may be used for."""

    __slots__ = ("algorithms", "key")

    def __init__(self, key: Any, algorithms: frozenset[str]) -> None:
        self.key = key
        self.algorithms = algorithms


def url_problem(url: str) -> str:
    """Return what is wrong with an address of an issuer, or an empty text."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "is no URL"
    if not host or "@" in parts.netloc or parts.fragment or any(ord(c) <= 32 or ord(c) == 127 for c in url):
        return "is no URL with a host, without a user and a fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)):
        return ""
    return "is not https (http is for loopback alone)"


def origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def fetch(
    url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> Any:
    """Return the JSON object at an address; with `form` the answer to a POST of it. Raises JwksError."""
    if problem := url_problem(url):
        raise JwksError(f"{url[:200]!r} {problem}")
    # Imported on first use: most brokers have no issuer.
    import httpx

    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=False) as client,
            client.stream(
                "GET" if form is None else "POST",
                url,
                data=form,
                headers={"accept": "application/json", "accept-encoding": "identity", **(headers or {})},
            ) as answer,
        ):
            if answer.status_code != 200:
                raise JwksError(f"{url} answered with status {answer.status_code}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise JwksError(f"{url} answered with a compressed document")
            body = bytearray()
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > MAX_BYTES:
                    raise JwksError(f"{url} answered with more than {MAX_BYTES} bytes")
    except TimeoutError:
        raise JwksError(f"{url} did not answer within {FETCH_SECONDS:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise JwksError(f"{url} cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document = None
    if not isinstance(document, dict):
        raise JwksError(f"{url} did not answer with a JSON object")
    return document


class Jwks:
    """The keys of one issuer."""

    def __init__(self, issuer: JwtIssuer, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._keys: dict[str | None, PublicKey] = {}
        self._fetched = self._tried = float("-inf")
        self._fetching = asyncio.Lock()

    async def find(self, key_id: str | None) -> PublicKey | None:
        """Return the key of a token, None if the issuer has no such key.

        A token without a key id fits the only key of an issuer that has one.
        """
        found = self._known(key_id)
        now = self._clock.monotonic()
        if found is not None and (now - self._fetched < _REFRESH_SECONDS or self._fetching.locked()):
            return found
        async with self._fetching:
            # Another token may have fetched them meanwhile.
            found = self._known(key_id)
            now = self._clock.monotonic()
            stale = now - self._fetched >= _REFRESH_SECONDS
            pause = _UNKNOWN_KEY_SECONDS if self._keys else _NO_KEY_SECONDS
            if (found is None or stale) and now - self._tried >= pause:
                self._tried = now
                await self._refresh()
        return self._known(key_id)

    def _known(self, key_id: str | None) -> PublicKey | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def _refresh(self) -> None:
        try:
            document = await fetch(self._issuer.jwks_uri or await self._discovered())
            keys = _keys_of(document)
        except JwksError as error:
            log.warning("no new keys of the issuer %s: %s", self._issuer.issuer, error)
            return
        self._keys, self._fetched = keys, self._clock.monotonic()

    async def _discovered(self) -> str:
        issuer = self._issuer.issuer
        document = await fetch(issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != issuer:
            raise JwksError(f"its discovery document is of {str(document.get('issuer'))[:200]!r}")
        uri = document.get("jwks_uri")
        if not isinstance(uri, str) or url_problem(uri):
            raise JwksError("its discovery document has no jwks_uri with https")
        if origin(uri) != origin(issuer):
            raise JwksError(
                f"its keys are at another origin, {uri[:200]!r}: if that is right, set jwks_uri of the issuer to it"
            )
        return uri


def _keys_of(document: Any) -> dict[str | None, PublicKey]:
    """Return the keys for signatures by their ids. Raises JwksError if there is none that can be used."""
    entries = document.get("keys")
    found: dict[str | None, PublicKey] = {}
    for entry in entries[:_MAX_KEYS] if isinstance(entries, list) else []:
        key_id = entry.get("kid") if isinstance(entry, dict) else None
        key = _public_key(entry) if isinstance(entry, dict) else None
        if key is not None and (key_id is None or isinstance(key_id, str)):
            found[key_id] = key
    if not found:
        raise JwksError("it has no key for signatures that can be used")
    return found


def _public_key(entry: dict[str, Any]) -> PublicKey | None:
    import jwt

    algorithms = ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))), frozenset())
    if "alg" in entry:
        algorithms &= {str(entry["alg"])}
    uses = entry.get("key_ops", ["verify"])
    if (
        not algorithms
        or entry.get("use", "sig") != "sig"
        or not isinstance(uses, list)
        or "verify" not in uses
    ):
        return None
    # The public members alone, so that a private key that an issuer shows by mistake is not kept.
    public: dict[str, Any] = {
        name: entry[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in entry
    }
    try:
        key = jwt.PyJWK(public, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if entry["kty"] == "RSA" and key.key_size < _MIN_RSA_BITS:
        return None
    return PublicKey(key, algorithms)
