"""SASL/OAUTHBEARER, the server's side, without I/O (RFC 7628, KIP-255).

    client    n,[a=<authorization id>],^Aauth=Bearer <token>^A[<extension>=<value>^A…]^A
    server    an empty message, or {"status":"invalid_token"}
    client    ^A, after which the exchange has failed

As in Kafka: no channel binding, and a message that cannot be read, or with another authorization id, fails at once.
Extensions are read and ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

REFUSAL = b'{"status":"invalid_token"}'
"""The answer to a token that is not valid (RFC 7628, section 3.2.2). It does not say why."""

# Forms of RFC 7628, section 3.1; a saslname escapes the comma and the equals sign, as in SCRAM.
_MESSAGE = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\x00-\x1f,=]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)+)\x01"
)
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


class OauthBearerError(Exception):
    """The message is not one of SASL/OAUTHBEARER."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token that is to be verified, and the name that the client wants to act as, or none. Its repr hides it."""

    token: str = field(repr=False)
    authorization_id: str = ""


def parse(message: bytes) -> AccessToken:
    """Return the token of a client's first message. Raises OauthBearerError."""
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise OauthBearerError("not UTF-8") from None
    if found is None:
        raise OauthBearerError("malformed message")
    pairs = [pair.partition("=") for pair in found["pairs"].split("\x01")[:-1]]
    values = {name.lower(): value for name, _, value in pairs}
    if len(values) < len(pairs):
        raise OauthBearerError("a name more than once")
    bearer = _BEARER.fullmatch(values.get("auth", ""))
    if bearer is None:
        raise OauthBearerError("no bearer token")
    named = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return AccessToken(bearer[1], named)
