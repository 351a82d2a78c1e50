"""An issuer of access tokens in this process: its keys, its documents on loopback, good tokens and bad ones."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from core.config import JwtIssuer

AUDIENCE = "sluice"
DEEP = b'{"a":' * 1500 + b"1" + b"}" * 1500
_START_SECONDS = 60.0
ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n"


@cache
def private_key(name: str) -> Any:
    """A key by a name that begins with its type: rsa, ec, ed, weak. Made once, because RSA takes its time."""
    if name.startswith("rsa"):
        return rsa.generate_private_key(65537, 2048)
    if name.startswith("weak"):
        return rsa.generate_private_key(65537, 1024)
    return (
        ec.generate_private_key(ec.SECP256R1())
        if name.startswith("ec")
        else ed25519.Ed25519PrivateKey.generate()
    )


def public_jwk(name: str, **more: Any) -> dict[str, Any]:
    """The public half of a key as an issuer shows it; its `kid` is its name."""
    key = private_key(name).public_key()
    kind = (
        RSAAlgorithm
        if name.startswith(("rsa", "weak"))
        else ECAlgorithm
        if name.startswith("ec")
        else OKPAlgorithm
    )
    return {**json.loads(kind.to_jwk(key)), "kid": name, **more}


def part(value: Any) -> str:
    """A part of a token: JSON, or bytes as they are."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer that serves its documents at `url`, and may misbehave: see `answers`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.url = "http://127.0.0.1:1"
        self.keys = [public_jwk("rsa"), public_jwk("ec"), public_jwk("ed")]
        # By path: a whole answer in the place of the document.
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        # The requests for tokens: head and body.
        self.grants: list[tuple[bytes, bytes]] = []
        self.silent = asyncio.Event()
        self.silent.set()

    @property
    def settings(self) -> JwtIssuer:
        """What a broker is told of the issuer."""
        return JwtIssuer(self.url, (AUDIENCE, "other"), ALGORITHMS)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Issuer]:
        """Serve the documents on a port of loopback."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self.silent.set()
            server.close()
            await server.wait_closed()

    @contextmanager
    def served_in_a_thread(self) -> Iterator[Issuer]:
        """Serve the documents to clients that block this thread."""
        loop = asyncio.new_event_loop()
        ready, done = threading.Event(), asyncio.Event()

        async def serve() -> None:
            async with self.served():
                ready.set()
                await done.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        try:
            assert ready.wait(_START_SECONDS)
            yield self
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join()
            loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            form = await reader.readexactly(int(length[1])) if length else b""
            self.asked.append(path)
            if path == "/token":
                self.grants.append((head, form))
            await self.silent.wait()
            documents = {
                "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
                "/keys": {"keys": self.keys},
                # For clients that fetch their token themselves: the client credentials grant, without a check.
                "/token": {"access_token": self.mint(), "token_type": "Bearer", "expires_in": 600},
            }
            body = json.dumps(documents.get(path, {})).encode()
            whole = self.answers.get(path, OK + f"content-length: {len(body)}\r\n\r\n".encode() + body)
            writer.write(whole)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a good token; a change to None leaves one out."""
        now = int(self.now())
        good = {"iss": self.url, "sub": "alice", "aud": AUDIENCE, "iat": now, "exp": now + 600}
        return {name: value for name, value in (good | changes).items() if value is not None}

    def mint(
        self, key: str = "rsa", algorithm: str = "RS256", header: dict[str, Any] | None = None, **changes: Any
    ) -> str:
        """A token; without changes a good one."""
        headers = {"kid": key, "typ": "at+jwt", **(header or {})}
        return jwt.encode(self.claims(**changes), private_key(key), algorithm, headers=headers)

    def signed(self, header: dict[str, Any], payload: Any, key: str = "rsa") -> str:
        """A token with a header and a payload that no library would make, and a right RS256 signature."""
        text = f"{part(header)}.{part(payload)}"
        return f"{text}.{part(jwt.get_algorithm_by_name('RS256').sign(text.encode(), private_key(key)))}"

    def with_hmac(self, secret: bytes, algorithm: str = "HS256") -> str:
        """A token that is signed with a text that is public, as if it were a shared secret."""
        text = f"{part({'alg': algorithm, 'typ': 'at+jwt', 'kid': 'rsa'})}.{part(self.claims())}"
        return f"{text}.{part(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def bad_tokens(issuer: Issuer) -> dict[str, str]:
    """Tokens that must not let in, by what is wrong with them."""
    return {**_badly_signed(issuer), **_with_bad_claims(issuer)}


def _badly_signed(issuer: Issuer) -> dict[str, str]:
    good = issuer.mint()
    head, body, signature = good.split(".")
    plain = {"alg": "RS256", "typ": "at+jwt", "kid": "rsa"}
    pem = private_key("rsa").public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )  # fmt: skip
    other = public_jwk("rsa-other")
    return {
        "no token": "",
        "one part": "token",
        "not JSON": f"{part(b'no')}.{body}.{signature}",
        "no object": f"{part([1])}.{body}.{signature}",
        "five parts": f"{good}.{body}.{signature}",
        "no signature": f"{head}.{body}.",
        "another signature": f"{head}.{body}.{issuer.mint(sub='bob').split('.')[2]}",
        "changed claims": f"{head}.{part(issuer.claims(sub='admin'))}.{signature}",
        "alg none": f"{part({'alg': 'none', 'typ': 'at+jwt'})}.{body}.",
        "alg None with signature": f"{part({'alg': 'None', 'kid': 'rsa'})}.{body}.{signature}",
        "alg of a number": f"{part({'alg': 1, 'kid': 'rsa'})}.{body}.{signature}",
        "HMAC with the public key as PEM": issuer.with_hmac(pem),
        "HMAC with the public key as JWK": issuer.with_hmac(json.dumps(public_jwk("rsa")).encode()),
        "HMAC with nothing": issuer.with_hmac(b""),
        "an algorithm that is not configured": issuer.mint(algorithm="RS512"),
        "an algorithm of another key type": f"{part({**plain, 'alg': 'ES256'})}.{body}.{signature}",
        "a key of another issuer": issuer.mint("rsa-other", header={"kid": "rsa"}),
        "an unknown key": issuer.mint("rsa-other"),
        "no key id where there are three": issuer.signed({"alg": "RS256", "typ": "at+jwt"}, issuer.claims()),
        "jwk": issuer.signed({**plain, "jwk": other}, issuer.claims(), "rsa-other"),
        "jku": issuer.signed({**plain, "jku": f"{issuer.url}/keys"}, issuer.claims()),
        "x5u": issuer.signed({**plain, "x5u": f"{issuer.url}/keys"}, issuer.claims()),
        "x5c": issuer.signed({**plain, "x5c": ["AAAA"]}, issuer.claims()),
        "crit": issuer.signed({**plain, "crit": ["exp"]}, issuer.claims()),
        "b64": issuer.signed({**plain, "b64": False}, issuer.claims()),
        "a deep header": f"{part(DEEP)}.{body}.{signature}",
        "a logout token": issuer.mint(header={"typ": "logout+jwt"}),
        "a blank": f"{head}. {body}.{signature}",
        "padded": f"{head}==.{body}.{signature}",
    }  # fmt: skip


def _with_bad_claims(issuer: Issuer) -> dict[str, str]:
    now = int(issuer.now())
    plain = {"alg": "RS256", "typ": "at+jwt", "kid": "rsa"}
    return {
        "another issuer": issuer.mint(iss="https://other.example.org"),
        "issuer with a slash": issuer.mint(iss=f"{issuer.url}/"),
        "no issuer": issuer.mint(iss=None),
        "another audience": issuer.mint(aud="another"),
        "other audiences": issuer.mint(aud=["another", "sluic", "sluice "]),
        "no audience": issuer.mint(aud=None),
        "expired": issuer.mint(exp=now - 30, iat=now - 600),
        "no exp": issuer.mint(exp=None),
        "exp of a text": issuer.signed(plain, issuer.claims(exp=str(now + 600))),
        "exp true": issuer.signed(plain, issuer.claims(exp=True)),
        "exp without end": issuer.signed(plain, issuer.claims(exp=1e300)),
        "no iat": issuer.mint(iat=None),
        "made in the future": issuer.mint(iat=now + 60),
        "not yet valid": issuer.mint(nbf=now + 60),
        "an ID token": issuer.mint(nonce="n", at_hash="h"),
        "an ID token of Keycloak": issuer.mint(typ="ID"),
        "an ID token of Cognito": issuer.mint(token_use="id"),
        "a token bound to a key": issuer.mint(cnf={"jkt": "x"}),
        "no subject": issuer.mint(sub=None),
        "an empty subject": issuer.mint(sub=""),
        "a subject of a list": issuer.signed(plain, issuer.claims(sub=["alice"])),
        "a subject with a newline": issuer.mint(sub="alice\nbob"),
        "the subject of all users": issuer.mint(sub="*"),
        "the subject of a client without a login": issuer.mint(sub="ANONYMOUS"),
        "nested deep": issuer.signed(plain, DEEP),
        "too long": issuer.mint(filler="x" * 20_000),
    }  # fmt: skip
