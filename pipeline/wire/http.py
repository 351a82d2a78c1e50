"""Requests to the HTTP API of Sluice, one connection each: for what the Kafka protocol has no words for."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pipeline import limits
from pipeline.wire.connection import Timeouts
from pipeline.wire.errors import AuthenticationError, ConnectionLostError, WireError
from pipeline.wire.security import Login, Security, Tls, is_refusal

# Kinds of problems after which the same request may succeed a little later, beside those of status 408, 429 and 5xx.
_PASSING = frozenset({"concurrent-transactions"})


class RefusedError(WireError):
    """An answer that says no. `status` as in HTTP, `kind` the last part of the problem's type, empty without one."""

    def __init__(self, where: str, status: int, kind: str, detail: str) -> None:
        self.status = status
        self.kind = kind
        super().__init__(f"{where}: {status} {kind}{': ' if detail else ''}{detail}")


class HttpApi(NamedTuple):
    """Where the API is: a URL like `http://127.0.0.1:8082`, perhaps with a path in front. Picklable."""

    url: str
    timeouts: Timeouts = Timeouts()
    security: Security = Security()

    def call(self, method: str, path: str, body: object = None) -> Mapping[str, Any]:
        """Send a request, with `body` as JSON; return the JSON object of the answer, empty for 204.

        Raises ConnectionLostError for what may pass: no answer, 408, 429, 5xx; AuthenticationError for TLS and the
        login; RefusedError for everything else that is no 2xx; WireError for an answer that is no JSON object.
        """
        where = f"{method} {self.url}{path}"
        headers = {"Accept": "application/json", **_authorization(self.security.login)}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, urlsplit(self.url).path + path, data, headers)
            answer = connection.getresponse()
            status, got = answer.status, answer.read(limits.HTTP_ANSWER_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"{where}: the certificate is refused: {error.verify_message}"
            ) from None
        except (OSError, HTTPException) as error:
            if isinstance(error, OSError) and is_refusal(error):
                raise AuthenticationError(f"{where}: no TLS: {error}") from None
            raise ConnectionLostError(f"{where}: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()
        return _answer(where, status, got)

    def _connection(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        host, timeout = parts.hostname or "", self.timeouts.answer
        if parts.scheme == "https":
            context = (self.security.tls or Tls()).context()
            return HTTPSConnection(host, parts.port, timeout=timeout, context=context)
        return HTTPConnection(host, parts.port, timeout=timeout)


def _authorization(login: Login | None) -> dict[str, str]:
    if login is None:
        return {}
    secret = base64.b64encode(f"{login.username}:{login.secret()}".encode()).decode()
    return {"Authorization": f"Basic {secret}"}


def _answer(where: str, status: int, data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data) if data else {}
    except ValueError:
        found = None
    told = found if isinstance(found, dict) else {}
    if 200 <= status < 300:
        if not isinstance(found, dict):
            raise WireError(f"{where}: the answer is no JSON object")
        return found
    kind, detail = str(told.get("type", "")).rpartition("/")[2], str(told.get("detail", ""))
    refused = RefusedError(where, status, kind, detail)
    if status == 401:
        raise AuthenticationError(str(refused))
    if status in (408, 429) or status >= 500 or kind in _PASSING:
        raise ConnectionLostError(str(refused))
    raise refused
