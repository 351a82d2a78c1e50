"""Secrets for logins: text, a file, or an issuer's access tokens by the client credentials grant (KIP-768)."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from urllib.parse import quote

from core.client.settings import Secret
from core.errors import BrokerError, ErrorCode
from core.security.jwks import JwksError, fetch

# A token is used for this part of its life; one without a stated life for a minute.
_PART = 0.8
_DEFAULT_SECONDS = 60.0
_MAX_BYTES = 64 * 1024


def text_of(value: str) -> Secret:
    """Return a secret that is always the same."""

    async def secret() -> str:
        return value

    return secret


def text_of_file(path: str) -> Secret:
    """Return a secret that is read from a file at each login. It raises SASL_AUTHENTICATION_FAILED."""

    def read() -> str:
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES).decode().strip()

    async def secret() -> str:
        try:
            found = await asyncio.to_thread(read)
        except (OSError, UnicodeDecodeError) as error:
            raise _failed(f"{path} cannot be read: {error}") from None
        if not found:
            raise _failed(f"{path} is empty")
        return found

    return secret


class ClientCredentials:
    """Tokens of one client at one issuer; `secret` gives one that is valid for a while yet."""

    def __init__(self, url: str, client_id: str, client_secret: str, scope: str) -> None:
        self._url = url
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        self._headers = {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def secret(self) -> str:
        """Return a token. Raises SASL_AUTHENTICATION_FAILED if the issuer gives none."""
        loop = asyncio.get_running_loop()
        # The logins of all connections share a request.
        async with self._lock:
            if self._token and loop.time() < self._until:
                return self._token
            try:
                answer = await fetch(self._url, form=self._form, headers=self._headers)
            except JwksError as error:
                raise _failed(f"no access token: {error}") from None
            token, seconds = answer.get("access_token"), answer.get("expires_in")
            if not isinstance(token, str) or not token:
                raise _failed(f"{self._url} sent no access token")
            life = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else _DEFAULT_SECONDS
            self._token, self._until = token, loop.time() + life * _PART
            return token


def _failed(why: str) -> BrokerError:
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)
