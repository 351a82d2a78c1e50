"""`sluice health`: whether the broker of a data directory is ready, for the health checks of containers.

The broker writes its addresses into its data directory, so that the check needs neither ports nor certificates.
"""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from core.config import LISTENERS_FILE, LOOPBACK_OF

_PATH = "/readyz"
_TIMEOUT_SECONDS = 3.0


def problem(data_dir: Path) -> str:
    """Return why the broker of a data directory is not ready; empty if it is.

    Asks its HTTP listeners in their order, until one answers: a listener that wants certificates of clients does not.
    """
    file = data_dir / LISTENERS_FILE
    try:
        listeners = [urlsplit(url) for url in json.loads(file.read_text())]
    except FileNotFoundError:
        return f"No broker is running: there is no {file}."
    except (OSError, ValueError) as error:
        return f"Cannot read {file}: {error}."
    reason = f"{file} names no HTTP listener."
    for listener in listeners:
        if listener.scheme in ("http", "https"):
            try:
                status, text = _ask(listener)
            except (OSError, http.client.HTTPException) as error:
                reason = f"{listener.scheme}://{listener.netloc} does not answer: {error}."
                continue
            return "" if status == http.client.OK else f"{_PATH} answers {status}: {text}"
    return reason


def _ask(listener: SplitResult) -> tuple[int, str]:
    host = LOOPBACK_OF.get(listener.hostname or "", listener.hostname or "")
    if listener.scheme == "https":
        # The certificate need not be for this address. Nothing secret is sent, and only the address that the broker
        # itself has written is asked.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, listener.port, timeout=_TIMEOUT_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, listener.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", _PATH)
        answer = connection.getresponse()
        return answer.status, answer.read(1_000).decode(errors="replace").strip()
    finally:
        connection.close()
