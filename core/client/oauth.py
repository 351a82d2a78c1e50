"""Access tokens for OAUTHBEARER: from a file, or from a token endpoint by the client's credentials (KIP-768)."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from urllib.parse import quote

from core.client.settings import Secret
from core.errors import BrokerError, ErrorCode
from core.security.jwks import JwksError, fetch, url_problem

_MAX_TOKEN_BYTES = 64 * 1024


def _failed(why: str) -> BrokerError:
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)


def token_of_file(path: str) -> Secret:
    """Return a source that reads the token of a file at each login: another program may renew it."""

    def read() -> bytes:
        with Path(path).open("rb") as file:
            return file.read(_MAX_TOKEN_BYTES)

    async def give() -> str:
        try:
            text = (await asyncio.to_thread(read)).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise _failed(f"The token in {path} cannot be read: {why}.") from None
        if not text:
            raise _failed(f"The file {path} has no token.")
        return text

    return give


def client_credentials(url: str, client_id: str, secret: str, scope: str) -> Secret:
    """Return a source that asks a token endpoint at each login (RFC 6749, section 4.4).

    Raises ValueError for a URL that is not https. A login raises SASL_AUTHENTICATION_FAILED without
    a token.
    """
    if problem := url_problem(url):
        raise ValueError(f"sasl.oauthbearer.token.endpoint.url {problem}.")
    pair = base64.b64encode(f"{quote(client_id, safe='')}:{quote(secret, safe='')}".encode()).decode()
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}

    async def give() -> str:
        try:
            answer = await fetch(url, form=form, headers={"authorization": f"Basic {pair}"})
        except JwksError as error:
            raise _failed(f"The token endpoint gives no token: {error}.") from None
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise _failed(f"{url} answered without an access_token.")
        return token

    return give
