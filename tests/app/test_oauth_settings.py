"""The setting `oauth`: issuer, audience and algorithms must be said, and no start without them (CVE-2026-110985)."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.oauth_settings import parse_oauth
from app.settings import load, load_with_file
from core.config import JwtIssuer
from core.errors import StartupError

ISSUER = "https://issuer.example.org/realm"
GOOD = f"issuer={ISSUER}; audience=sluice, two; algorithms=RS256,ES256"
LISTENERS = {
    "jwt": "http://127.0.0.1:0?auth=basic,jwt",
    "oauthbearer": "kafka://127.0.0.1:0?auth=oauthbearer",
}


def test_one_issuer_and_several(tmp_path: Path) -> None:
    one = JwtIssuer(ISSUER, ("sluice", "two"), ("RS256", "ES256"))
    assert parse_oauth(GOOD) == (one,) and parse_oauth(" ") == ()
    file = tmp_path / "sluice.toml"
    file.write_text(
        f"[oauth]\nissuer = '{ISSUER}'\naudience = ['sluice', 'two']\nalgorithms = 'RS256, ES256'\n"
    )
    assert load_with_file({}, file).oauth == (one,)
    file.write_text(
        f"[oauth.corp]\nissuer = '{ISSUER}'\naudience = 'sluice'\nalgorithms = ['RS256']\n"
        "[oauth.apps]\nissuer = 'http://127.0.0.1:1'\naudience = 'sluice'\nalgorithms = ['EdDSA']\n"
        "jwks_uri = 'https://keys.example.org/'\nprincipal_claim = 'azp'\nprincipal_prefix = 'app-'\n"
    )
    assert load_with_file({}, file).oauth == (
        JwtIssuer(ISSUER, ("sluice",), ("RS256",)),
        JwtIssuer("http://127.0.0.1:1", ("sluice",), ("EdDSA",), "https://keys.example.org/", "azp", "app-"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("audience=a; algorithms=RS256", "needs issuer"),
        (f"issuer={ISSUER}; algorithms=RS256", "needs audience"),
        (f"issuer={ISSUER}; audience= ; algorithms=RS256", "needs audience"),
        (f"issuer={ISSUER}; audience=a", "needs algorithms"),
        (f"issuer={ISSUER}; audience=a; algorithms=none", "algorithms must be some of"),
        (f"issuer={ISSUER}; audience=a; algorithms=HS256", "algorithms must be some of"),
        ("issuer=http://issuer.example.org; audience=a; algorithms=RS256", "not https"),
        ("issuer=issuer; audience=a; algorithms=RS256", "no URL"),
        (f"{GOOD}; jwks_uri=file:///etc/passwd", "jwks_uri 'file:///etc/passwd'"),
        (f"{GOOD}; audiences=a", "Did you mean audience?"),
        (f"{GOOD}; issuer=https://a.example.org", "must be like"),
        (f"{GOOD}; principal_claim=", "principal_claim must be"),
        ("issuer", "must be like"),
        ("{", "not JSON"),
        ('{"a": {"issuer": 7}}', "issuer must be a string"),
        ('{"a": {}, "b": 7}', "needs issuer"),
    ],
)
def test_what_a_start_refuses(text: str, said: str) -> None:
    with pytest.raises(StartupError) as caught:
        load({"SLUICE_OAUTH": text})
    assert said in str(caught.value) and "SLUICE_OAUTH" in str(caught.value)


def test_two_issuers_must_not_name_the_same_user(tmp_path: Path) -> None:
    file = tmp_path / "sluice.toml"
    table = "issuer = 'https://{}.example.org'\naudience = 'sluice'\nalgorithms = 'RS256'\n"
    file.write_text(f"[oauth.a]\n{table.format('a')}[oauth.b]\n{table.format('b')}")
    with pytest.raises(StartupError, match="principal_prefix"):
        load_with_file({}, file)
    file.write_text(f"[oauth.a]\n{table.format('a')}[oauth.b]\n{table.format('a')}principal_prefix = 'b-'")
    with pytest.raises(StartupError, match="more than once"):
        load_with_file({}, file)


@pytest.mark.parametrize("word", sorted(LISTENERS))
def test_a_listener_that_takes_tokens_needs_an_issuer(word: str) -> None:
    with pytest.raises(StartupError, match=f"takes {word}, and there is no issuer"):
        load({}, listeners=[LISTENERS[word]])
    config = load({"SLUICE_OAUTH": GOOD}, listeners=[LISTENERS[word]])
    assert word in config.listeners[0].authentication
