"""SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152).

Versions 0–2, flexible from 2.

Version 1 answers how long the session lives (KIP-368).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int64, Message


class SaslAuthenticateRequest(Message):
    """SaslAuthenticate request."""

    auth_bytes: Annotated[bytes, F("0+")] = b""


class SaslAuthenticateResponse(Message):
    """SaslAuthenticate response."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    auth_bytes: Annotated[bytes, F("0+")] = b""
    # 0: the session does not expire.
    session_lifetime_ms: Annotated[Int64, F("1+")] = 0
