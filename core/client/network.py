"""How connections are made: over TCP, or by what a test hands in."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from core.client.settings import Address


class Network(Protocol):
    """Makes connections."""

    async def connect(
        self,
        protocol: Callable[[], asyncio.BufferedProtocol],
        address: Address,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Connect, with a TLS handshake if `tls` is given, and call the protocol's `connection_made`.

        Raises OSError (ssl.SSLError is one).
        """


class Tcp:
    """Connections over TCP."""

    async def connect(
        self,
        protocol: Callable[[], asyncio.BufferedProtocol],
        address: Address,
        tls: ssl.SSLContext | None,
    ) -> None:
        """See `Network.connect`. The host of the address is the name that the certificate must have."""
        loop = asyncio.get_running_loop()
        if tls is None:
            await loop.create_connection(protocol, address.host, address.port)
        else:
            await loop.create_connection(
                protocol, address.host, address.port, ssl=tls, server_hostname=address.host
            )
