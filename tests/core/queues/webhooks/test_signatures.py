"""Secrets and signatures, verified by the reference library."""

from __future__ import annotations

import base64
import json
import random
import time

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from core.errors import BrokerError
from core.queues.webhooks.signatures import (
    MAX_SECRETS,
    Secret,
    live,
    new_secret,
    parse_secret,
    public_key,
    rotated,
    sign,
)
from core.vocabulary.webhooks import ROTATION_MS, Signing

randbytes = random.Random(1).randbytes


def headers(secrets: tuple[Secret, ...], body: bytes) -> dict[str, str]:
    seconds = int(time.time())
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(seconds),
        "webhook-signature": sign(secrets, "msg_1", seconds, body),
    }


@given(st.text(), st.integers(24, 64))
def test_the_reference_library_verifies_a_signature(text: str, size: int) -> None:
    secret = parse_secret("whsec_" + base64.b64encode(randbytes(size)).decode())
    body = json.dumps({"text": text}).encode()
    assert Webhook(secret.text).verify(body, headers((secret,), body)) == {"text": text}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret.text).verify(body + b" ", headers((secret,), body))


def test_after_a_rotation_both_secrets_verify_for_a_day() -> None:
    now_ms = int(time.time() * 1000)
    old, new = new_secret(Signing.HMAC, randbytes), new_secret(Signing.HMAC, randbytes)
    both = rotated((old,), new, now_ms)
    body = b'{"a":1}'
    for one in (old, new):
        assert Webhook(one.text).verify(body, headers(live(both, now_ms + ROTATION_MS - 1), body))
    later = live(both, now_ms + ROTATION_MS)
    assert [one.text for one in later] == [new.text]
    with pytest.raises(WebhookVerificationError):
        Webhook(old.text).verify(body, headers(later, body))


def test_rotations_in_a_row_keep_a_few_secrets_and_end_each_a_day_after_its_own_rotation() -> None:
    secrets: tuple[Secret, ...] = (new_secret(Signing.HMAC, randbytes),)
    for hour in range(10):
        secrets = rotated(secrets, new_secret(Signing.HMAC, randbytes), hour * 3_600_000)
    assert len(secrets) == MAX_SECRETS
    assert [one.until_ms for one in secrets] == [None, *(ROTATION_MS + h * 3_600_000 for h in (9, 8, 7))]


def test_a_rotation_to_the_same_secret_keeps_one() -> None:
    secret = new_secret(Signing.HMAC, randbytes)
    assert rotated((secret,), secret, 0) == (secret,)


def test_a_key_pair_signs_so_that_its_public_key_verifies() -> None:
    secret = new_secret(Signing.ED25519, randbytes)
    public = public_key(secret)
    assert public is not None and public.startswith("whpk_")
    version, _, signature = sign((secret,), "msg_1", 17, b"body").partition(",")
    assert version == "v1a"
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public[5:]))
    key.verify(base64.b64decode(signature), b"msg_1.17.body")
    with pytest.raises(InvalidSignature):
        key.verify(base64.b64decode(signature), b"msg_2.17.body")


def test_a_private_key_may_have_its_public_key_with_it() -> None:
    secret = new_secret(Signing.ED25519, randbytes)
    public = public_key(secret)
    assert public is not None
    seed = base64.b64decode(secret.text[5:])
    pair = parse_secret("whsk_" + base64.b64encode(seed + base64.b64decode(public[5:])).decode())
    assert public_key(pair) == public
    assert sign((pair,), "a", 1, b"b") == sign((secret,), "a", 1, b"b")


@pytest.mark.parametrize(
    "text",
    [
        "", "secret", "whsec_", "whsec_!!!!", "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(), "whsk_" + base64.b64encode(b"x" * 31).decode(),
        "whsk_" + base64.b64encode(b"x" * 64).decode(), "whpk_" + base64.b64encode(b"x" * 32).decode(),
    ],
)  # fmt: skip
def test_a_wrong_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BrokerError) as caught:
        parse_secret(text)
    assert len(text) < 10 or text[6:] not in caught.value.message


def test_a_secret_has_no_text_for_logs() -> None:
    secret = new_secret(Signing.HMAC, randbytes)
    assert secret.text[6:] not in f"{secret!r} {secret} {(secret,)}"
