"""The client's side of SCRAM, written from RFC 5802 alone, so that the server is not checked against itself."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramClient:
    """One exchange: `first`, `final` with the server's first message, `verify` with its last."""

    def __init__(self, user: str, password: str, digest: str = "sha256", nonce: str = "rOprNGfwEbeRWgbNEkqO"):
        self.user = user.replace("=", "=3D").replace(",", "=2C")
        self.password = password
        self.digest = digest
        self.nonce = nonce
        self.header = "n,,"
        self.extension = ""
        # Text before the nonce in the final message.
        self.before_nonce = ""
        self._salted = b""
        self._signed = b""

    def first(self) -> bytes:
        return f"{self.header}{self._bare()}".encode()

    def _bare(self) -> str:
        return f"n={self.user},r={self.nonce}{self.extension}"

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        assert fields["r"].startswith(self.nonce) and len(fields["r"]) > len(self.nonce)
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        self._salted = hashlib.pbkdf2_hmac(self.digest, self.password.encode(), salt, rounds)
        client_key = self._mac(self._salted, b"Client Key")
        stored_key = hashlib.new(self.digest, client_key).digest()
        unsigned = f"c={base64.b64encode(self.header.encode()).decode()},r={self.before_nonce}{fields['r']}"
        self._signed = f"{self._bare()},{server_first.decode()},{unsigned}".encode()
        proof = bytes(a ^ b for a, b in zip(client_key, self._mac(stored_key, self._signed), strict=True))
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> bool:
        key = self._mac(self._salted, b"Server Key")
        return server_final == b"v=" + base64.b64encode(self._mac(key, self._signed))

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self.digest).digest()
