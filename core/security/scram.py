"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side, without I/O (RFC 5802, RFC 7677, KIP-84).

    client    n,,n=alice,r=<nonce of the client>
    server    r=<both nonces>,s=<salt>,i=<iterations>
    client    c=biws,r=<both nonces>,p=<proof>
    server    v=<signature>, or the exchange has failed

As in Kafka: no channel binding, names and passwords are plain UTF-8 without SASLprep, and a client may add extensions
to its first message. A user that does not exist gets a salt too, and fails at the end as a wrong password does.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

# Kafka's bounds (KIP-554); librdkafka and kafka-python accept up to a million from a server.
MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 16_384
SALT_BYTES = 16
_NONCE_BYTES = 24
# No longer name or nonce is looked at: Kafka's tools make nonces of 26 characters.
_MAX_FIELD = 1_024

_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<name>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?)"
)
_FINAL = re.compile(r"(?P<unsigned>c=(?P<binding>[^,]*),r=(?P<nonce>[^,]*)(?:,.*)?),p=(?P<proof>[^,]*)")
_ESCAPED = re.compile(r"=(?!2C|3D)")


class Mechanism(IntEnum):
    """A SCRAM mechanism under its number in Kafka's requests (KIP-554)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in a SASL handshake."""
        return "SCRAM-SHA-256" if self is Mechanism.SHA_256 else "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The name of the hash function in hashlib."""
        return "sha256" if self is Mechanism.SHA_256 else "sha512"


class ScramError(Exception):
    """The exchange has failed. The reason is for debugging alone: a client gets one text for all."""


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What is kept of a password: it checks a client, and is no password elsewhere."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, ***)"


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return Hi(password, salt, iterations) of RFC 5802, which is PBKDF2; 7 to 17 ms at 16,384 iterations."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return ScramCredential(
        salt,
        hashlib.new(mechanism.digest, client_key).digest(),
        hmac.digest(salted, b"Server Key", mechanism.digest),
        iterations,
    )


def matches(mechanism: Mechanism, credential: ScramCredential, password: str) -> bool:
    """Return whether a credential is that of a password, in a time that does not depend on how much is right."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


class ScramExchange:
    """One exchange: `first`, then `final`. `user` is the name after `first`, not proven before `final` returns.

    `find` returns the credential of a name, or a made-up one with `known` false.
    """

    def __init__(
        self, mechanism: Mechanism, find: Callable[[str], tuple[ScramCredential, bool]], random: bytes
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = base64.b64encode(random[:_NONCE_BYTES]).decode()
        self.user = ""
        self._header = ""
        self._client_nonce = self._nonce = ""
        self._credential: ScramCredential | None = None
        self._known = False
        self._authentication_message = ""

    def first(self, message: bytes) -> bytes:
        """Take the client's first message; return the server's. Raises ScramError."""
        found = _FIRST.fullmatch(_text(message))
        if found is None or max(len(found["name"]), len(found["nonce"])) > _MAX_FIELD:
            raise ScramError("malformed first message")
        self.user = unescape(found["name"])
        if found["authzid"] and unescape(found["authzid"]) != self.user:
            raise ScramError("another authorization id")
        if not self.user:
            raise ScramError("no user")
        self._header = f"n,a={found['authzid']}," if found["authzid"] is not None else "n,,"
        self._credential, self._known = self._find(self.user)
        self._client_nonce = found["nonce"]
        self._nonce = self._client_nonce + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._authentication_message = f"{found['bare']},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Take the client's final message; return the server's. Raises ScramError unless the proof holds."""
        found = _FINAL.fullmatch(_text(message))
        credential = self._credential
        if found is None or credential is None:
            raise ScramError("malformed final message")
        # The header of the first message again, mostly "biws": another one would be a downgrade on the way.
        if _decoded(found["binding"]) != self._header.encode():
            raise ScramError("another channel binding")
        # The whole nonce: comparing its end alone was CVE-2024-56128. librdkafka before 2.6.1 (kcat of Debian 12)
        # puts its own half in front once more. That form holds both halves too, and the proof signs it.
        if found["nonce"] not in (self._nonce, self._client_nonce + self._nonce):
            raise ScramError("another nonce")
        proof = _decoded(found["proof"])
        signed = f"{self._authentication_message},{found['unsigned']}".encode()
        digest = self._mechanism.digest
        signature = hmac.digest(credential.stored_key, signed, digest)
        if proof is None or len(proof) != len(signature):
            raise ScramError("a proof of another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        # The user may have been deleted, or have got another password, since the first message.
        unchanged = self._find(self.user) == (credential, self._known)
        if not right or not self._known or not unchanged:
            raise ScramError("wrong password, or no such user")
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, digest))


def unescape(name: str) -> str:
    """Return a name of a message as it is: `=2C` is a comma, `=3D` an equals sign. Raises ScramError."""
    if _ESCAPED.search(name):
        raise ScramError("a name with a bare equals sign")
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None
    if "\0" in text or "\n" in text:
        raise ScramError("a control character")
    return text


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
