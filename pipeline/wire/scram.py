"""SCRAM-SHA-256 and SCRAM-SHA-512 for the pipeline: the exchange of `core.security`, with errors of the wire."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

from core.security import scram_client
from core.security.scram import ScramError
from core.security.scram_client import MAX_ITERATIONS, MIN_ITERATIONS
from pipeline.wire.errors import AuthenticationError

__all__ = ["MAX_ITERATIONS", "MIN_ITERATIONS", "ScramClient"]

_NONCE_BYTES = 24

Result = TypeVar("Result")


class ScramClient:
    """One exchange: `first`, `final` with the server's first message, `verify` with its last.

    `nonce` is given in tests alone.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str | None = None) -> None:
        nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._exchange = scram_client.ScramClient(mechanism, user, password, nonce)

    def first(self) -> bytes:
        """Return the client's first message."""
        return self._exchange.first()

    def final(self, message: bytes) -> bytes:
        """Take the server's first message; return the proof. Raises AuthenticationError if it is out of bounds."""
        return _checked(self._exchange.final, message)

    def verify(self, message: bytes) -> None:
        """Take the server's last message. Raises AuthenticationError unless the server knows the password too."""
        _checked(self._exchange.verify, message)


def _checked(step: Callable[[bytes], Result], message: bytes) -> Result:
    try:
        return step(message)
    except ScramError as error:
        raise AuthenticationError(str(error)) from None
