"""SaslHandshake (key 17): a client names its SASL mechanism.

Versions 0–1, never flexible.

After version 0 raw SASL bytes follow, after version 1 SaslAuthenticate requests (KIP-152).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Message


class SaslHandshakeRequest(Message):
    """SaslHandshake request."""

    mechanism: Annotated[str, F("0+")] = ""


class SaslHandshakeResponse(Message):
    """SaslHandshake response."""

    error_code: Annotated[Int16, F("0+")] = 0
    mechanisms: Annotated[list[str], F("0+")] = []
