"""Access tokens of a token endpoint, by the client's own name and secret."""

from __future__ import annotations

import asyncio
import json

import pytest

from core.client.oauth import client_credentials
from core.errors import BrokerError, ErrorCode


async def test_an_endpoint_gives_a_token_for_the_name_and_secret_of_the_client() -> None:
    asked: list[bytes] = []
    answers: list[object] = [{"error": "no"}, {"access_token": "a token", "expires_in": 60}]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        asked.append(head + await reader.readexactly(size))
        data = json.dumps(answers.pop()).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(data) + data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
    assert await client_credentials(url, "me", "a secret", "kafka")() == "a token"
    assert b"grant_type=client_credentials&scope=kafka" in asked[0]
    assert b"Basic bWU6YSUyMHNlY3JldA==" in asked[0]
    with pytest.raises(BrokerError, match="without an access_token") as caught:
        await client_credentials(url, "me", "a secret", "")()
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED and b"scope" not in asked[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(BrokerError, match="gives no token") as caught:
        await client_credentials(url, "me", "a secret", "")()
    assert "a secret" not in caught.value.message
