"""The setting SLUICE_CONSOLE_OIDC: what it must have, and what stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.oidc_settings import parse_oidc
from core.config import MAX_OIDC_SESSION_MINUTES, JwtIssuer, OidcClient
from core.errors import StartupError
from core.security.sessions import MAX_SECONDS

ISSUER = "https://issuer.example.org"
ISSUERS = [JwtIssuer(ISSUER, ("sluice",), ("RS256",))]
BACK = "https://sluice.example.org/console/session/callback"
GOOD = f"issuer={ISSUER}; client_id=sluice; redirect_uri={BACK}"


def test_a_client_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    found = parse_oidc(f"{GOOD}; client_secret_file={secret}; scope=openid email;", ISSUERS)
    assert found is not None and found == OidcClient(ISSUER, "sluice", BACK, secret, "openid email")
    assert parse_oidc("", ISSUERS) is None
    shorter = parse_oidc(f"{GOOD}; session_minutes=15", ISSUERS)
    assert MAX_OIDC_SESSION_MINUTES * 60 == MAX_SECONDS
    assert (found.session_minutes, shorter) == (60, OidcClient(ISSUER, "sluice", BACK, session_minutes=15))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sluice", "must be like"),
        (f"{GOOD}; client_id=other", "must be like"),
        (f"{GOOD}; client_secret=hidden", "Did you mean client_secret_file"),
        (f"issuer={ISSUER}; redirect_uri={BACK}", "needs client_id"),
        (f"issuer={ISSUER}; client_id=sluice", "needs redirect_uri"),
        (GOOD.replace("https://sluice", "http://sluice"), "is not https"),
        (GOOD.replace("/callback", "/elsewhere"), "must end with"),
        (GOOD.replace("/callback", "/callback?next=x"), "must end with"),
        (GOOD.replace("issuer.example", "other.example"), "not one of SLUICE_OAUTH"),
        (f"{GOOD}; scope=email", "scope must have openid"),
        (f"{GOOD}; session_minutes=0", "from 1 to 720"),
        (f"{GOOD}; session_minutes=721", "from 1 to 720"),
        (f"{GOOD}; session_minutes=1h", "from 1 to 720"),
        (f"{GOOD}; token_endpoint=http://10.0.0.1/token", "is not https"),
        (f"{GOOD}; client_secret_file=/nowhere/at/all", "Cannot read"),
    ],
)
def test_what_is_wrong_stops_the_start(text: str, said: str) -> None:
    with pytest.raises(StartupError, match=said) as error:
        parse_oidc(text, ISSUERS)
    assert "hidden" not in str(error.value)


def test_a_secret_that_others_may_read_stops_the_start(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o644)
    secret.chmod(0o644)
    with pytest.raises(StartupError, match="chmod 600"):
        parse_oidc(f"{GOOD}; client_secret_file={secret}", ISSUERS)
