"""SASL as a client does it: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (KIP-43, KIP-84, KIP-152, KIP-255)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from core.client.settings import Login
from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.security.scram import ScramError
from core.security.scram_client import ScramClient

_NONCE_BYTES = 24
# What a client sends after the server has said why it refuses a token (RFC 7628, section 3.2.3).
_KVSEP = b"\x01"

Ask = Callable[[bytes], Awaitable[bytes]]


async def log_in(login: Login, clock: Clock, ask: Ask) -> None:
    """Do one exchange; `ask` sends a SASL message and returns the broker's answer.

    Raises BrokerError SASL_AUTHENTICATION_FAILED, also if the broker cannot prove with SCRAM that it knows the
    password, and what `ask` and `login.secret` raise.
    """
    secret = await login.secret()
    if login.mechanism == "PLAIN":
        await ask(f"\0{login.username}\0{secret}".encode())
    elif login.mechanism == "OAUTHBEARER":
        refusal = await ask(_bearer(secret, login.extensions))
        if refusal:
            # The broker closes the exchange with an error, which `ask` raises.
            await ask(_KVSEP)
            raise _failed(f"the broker refuses the token: {refusal[:200].decode(errors='replace')}")
    else:
        await _scram(login, secret, clock, ask)


async def _scram(login: Login, password: str, clock: Clock, ask: Ask) -> None:
    nonce = clock.secret_bytes(_NONCE_BYTES).hex()
    exchange = ScramClient(login.mechanism, login.username, password, nonce)
    try:
        first = await ask(exchange.first())
        # Thousands of rounds of a hash.
        proof = await asyncio.to_thread(exchange.final, first)
        exchange.verify(await ask(proof))
    except ScramError as error:
        raise _failed(str(error)) from None


def _bearer(token: str, extensions: tuple[tuple[str, str], ...]) -> bytes:
    """Return the first message of OAUTHBEARER (RFC 7628, section 3.1)."""
    pairs = "".join(f"\x01{name}={value}" for name, value in extensions)
    return f"n,,\x01auth=Bearer {token}{pairs}\x01\x01".encode()


def _failed(why: str) -> BrokerError:
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)
