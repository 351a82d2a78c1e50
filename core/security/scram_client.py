"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side, without I/O (RFC 5802, RFC 7677).

Both sides prove that they know the password, and neither sends it. `verify` is the half that clients forget: without
it any server could take the client's records.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from core.security.scram import Mechanism, ScramError, salted_password

# The least of RFC 7677 and of Kafka: a server that asks for fewer rounds could guess the password from one proof.
MIN_ITERATIONS = 4_096
# What librdkafka accepts; more would keep the client busy for seconds.
MAX_ITERATIONS = 1_000_000
_GS2_HEADER = "n,,"


class ScramClient:
    """One exchange: `first`, `final` with the server's first message, `verify` with its last.

    `mechanism` is the name in a SASL handshake, `nonce` printable text without a comma that was never used before.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._mechanism = next(one for one in Mechanism if one.sasl_name == mechanism)
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"{_GS2_HEADER}{self._bare}".encode()

    def final(self, message: bytes) -> bytes:
        """Take the server's first message; return the proof. Raises ScramError if it is out of bounds.

        2 to 17 ms for the iterations that Kafka allows; a server may ask for more.
        """
        nonce, salt, iterations = self._read_first(message)
        digest = self._mechanism.digest
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        unsigned = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._bare},{message.decode()},{unsigned}".encode()
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Take the server's last message. Raises ScramError unless the server knows the password too."""
        fields = _fields(message)
        if "e" in fields:
            raise ScramError("SCRAM: the broker refuses the login")
        signature = _decoded(fields.get("v", ""))
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise ScramError("SCRAM: the broker does not know the password of the user")

    def _read_first(self, message: bytes) -> tuple[str, bytes, int]:
        """Return both nonces as one, the salt and the number of iterations."""
        fields = _fields(message)
        nonce, salt, rounds = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("SCRAM: the broker answers another nonce")
        # A mandatory extension that is not known here (RFC 5802, section 5.1).
        if "m" in fields or not salt or not rounds.isascii() or not rounds.isdigit():
            raise ScramError("SCRAM: the first message of the broker cannot be read")
        if len(rounds) > 7 or not MIN_ITERATIONS <= int(rounds) <= MAX_ITERATIONS:
            raise ScramError(
                f"SCRAM: the broker asks for {rounds[:20]} iterations, not {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        return nonce, salt, int(rounds)


def _fields(message: bytes) -> dict[str, str]:
    try:
        return {part[:1]: part[2:] for part in message.decode().split(",") if part[1:2] == "="}
    except UnicodeDecodeError:
        raise ScramError("SCRAM: a message of the broker is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
