"""Secrets and signatures of Standard Webhooks: v1 (HMAC-SHA256) and v1a (ed25519). Pure: times are arguments.

The signed text is `id.timestamp.body`. A secret is `whsec_` and base64 of 24 to 64 bytes. A key pair is `whsk_` and
base64 of the private key's seed, perhaps followed by the public key; receivers verify with `whpk_` and the public
key.
Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.vocabulary.webhooks import ROTATION_MS, Signing

SECRET, PRIVATE, PUBLIC = "whsec_", "whsk_", "whpk_"
# The bounds of the specification.
MIN_SECRET, MAX_SECRET = 24, 64
_NEW_SECRET = 32
_SEED = 32
# Secrets that sign at the same time: the current one, and those of rotations of the last day.
MAX_SECRETS = 4


class Secret(NamedTuple):
    """A secret in the form of its text. It signs until `until_ms`; None is without an end."""

    text: str
    until_ms: int | None = None

    @property
    def signing(self) -> Signing:
        """Return how it signs."""
        return Signing.ED25519 if self.text.startswith(PRIVATE) else Signing.HMAC

    def __repr__(self) -> str:
        # A secret is in no log, also not by way of an exception's text.
        return f"Secret({self.signing.value}, until_ms={self.until_ms})"


def new_secret(signing: Signing, random: Callable[[int], bytes]) -> Secret:
    """Make a secret of random bytes; `random` returns as many as it is asked for."""
    if signing is Signing.ED25519:
        return Secret(PRIVATE + _text(random(_SEED)))
    return Secret(SECRET + _text(random(_NEW_SECRET)))


def parse_secret(text: str) -> Secret:
    """Return a secret that a caller gives. Raises INVALID_REQUEST; no message repeats the secret."""
    prefix = next((one for one in (SECRET, PRIVATE) if text.startswith(one)), None)
    if prefix is None:
        raise _invalid(f"A secret begins with {SECRET!r} (shared) or {PRIVATE!r} (a private key).")
    try:
        data = base64.b64decode(text[len(prefix) :], validate=True)
    except (binascii.Error, ValueError):
        raise _invalid(f"After {prefix!r} a secret is base64, with padding.") from None
    if prefix == SECRET and not MIN_SECRET <= len(data) <= MAX_SECRET:
        raise _invalid(
            f"A secret has {MIN_SECRET} to {MAX_SECRET} bytes before base64; this one has {len(data)}."
        )
    if prefix == PRIVATE:
        if len(data) not in (_SEED, 2 * _SEED):
            raise _invalid(f"A private key has {_SEED} bytes, or {2 * _SEED} with the public key.")
        if len(data) == 2 * _SEED and _public(data[:_SEED]) != data[_SEED:]:
            raise _invalid("The second half of the private key is not its public key.")
    return Secret(text)


def public_key(secret: Secret) -> str | None:
    """Return `whpk_…` of a key pair; None for a shared secret."""
    if secret.signing is not Signing.ED25519:
        return None
    return PUBLIC + _text(_public(_bytes(secret)[:_SEED]))


def rotated(secrets: Sequence[Secret], new: Secret, now_ms: int) -> tuple[Secret, ...]:
    """Return the secrets after a rotation, the newest first. The one before signs for a day."""
    kept = [one for one in live(secrets, now_ms) if one.text != new.text]
    ending = [Secret(one.text, one.until_ms or now_ms + ROTATION_MS) for one in kept]
    return (new, *ending)[:MAX_SECRETS]


def live(secrets: Sequence[Secret], now_ms: int) -> tuple[Secret, ...]:
    """Return the secrets that sign now. The current one has no end, so there is always one."""
    return tuple(one for one in secrets if one.until_ms is None or one.until_ms > now_ms)


def sign(secrets: Sequence[Secret], webhook_id: str, seconds: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`: a signature of each secret, with spaces."""
    signed = b"%b.%d.%b" % (webhook_id.encode(), seconds, body)
    return " ".join(_signature(one, signed) for one in secrets)


def _signature(secret: Secret, signed: bytes) -> str:
    if secret.signing is Signing.HMAC:
        return "v1," + _text(hmac.new(_bytes(secret), signed, hashlib.sha256).digest())
    # Imported with the first key pair: cryptography costs some MB.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return "v1a," + _text(Ed25519PrivateKey.from_private_bytes(_bytes(secret)[:_SEED]).sign(signed))


def _public(seed: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _bytes(secret: Secret) -> bytes:
    return base64.b64decode(secret.text.partition("_")[2])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
