"""app.gateway_settings: the list of gateways, this one's name, and the secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.gateway_settings import read_secret
from app.gateways.setup import forwarding_of
from app.settings import load
from core.clock import Clock
from core.config import Gateway
from core.errors import StartupError

LIST = "a=http://10.0.0.1:8082, b=https://gateway-b, c=http://[::1]:1"


def test_gateways_come_from_flags_or_the_environment() -> None:
    secret = {"SLUICE_GATEWAY_SECRET_FILE": "/s"}
    config = load({**secret, "SLUICE_GATEWAYS": LIST, "SLUICE_GATEWAY_NAME": "b"})
    expected = (
        Gateway("a", "http", "10.0.0.1", 8082),
        Gateway("b", "https", "gateway-b", 443),
        Gateway("c", "http", "::1", 1),
    )
    assert (config.gateways, config.gateway_name) == (expected, "b")
    flags = load(secret, gateways=[str(one) for one in expected], gateway_name="b")
    assert flags.gateways == expected
    assert load({}).gateways == ()


@pytest.mark.parametrize(
    ("gateways", "name", "words"),
    [
        (["a"], "a", "is not like a=http://10.0.0.1:8082"),
        (["a=ftp://x:1"], "a", "is not like"),
        (["a=http://x:1/path"], "a", "is not like"),
        (["a=http://u:p@x:1"], "a", "is not like"),
        (["a=http://x:99999"], "a", "is not like"),
        (["a b=http://x:1"], "a b", "is not like"),
        (["a=http://x:1", "a=http://y:1"], "a", "different names"),
        (["a=http://x:1", "b=http://x:1"], "a", "different addresses"),
        (["a=http://x:1", "b=http://y:1"], None, "it is missing"),
        (["alpha=http://x:1", "beta=http://y:1"], "alfa", "Did you mean alpha?"),
        ([], "a", "--gateway-name needs the list"),
        (["a=http://x:1", "b=http://y:1"], "a", "SLUICE_GATEWAY_SECRET_FILE"),
    ],
)
def test_a_list_that_cannot_work_stops_the_start(gateways: list[str], name: str | None, words: str) -> None:
    with pytest.raises(StartupError) as caught:
        load({}, gateways=gateways, gateway_name=name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_secret_is_long_enough_and_private(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for text, mode, words in (
        ("short", 0o600, "it needs 16 to 4096"),
        ("x" * 5_000, 0o600, "it needs 16 to 4096"),
        ("0123456789abcdef", 0o644, "chmod 600"),
    ):
        file.write_text(text)
        file.chmod(mode)
        with pytest.raises(StartupError, match=words):
            read_secret(file)
    file.write_text(" 0123456789abcdef\n")
    file.chmod(0o600)
    assert read_secret(file) == b"0123456789abcdef"
    with pytest.raises(StartupError, match="Cannot read the secret"):
        read_secret(tmp_path / "none")


def test_one_gateway_alone_forwards_nothing_and_a_bad_authority_stops_the_start(tmp_path: Path) -> None:
    assert forwarding_of(load({}, gateways=["a=http://x:1"], gateway_name="a"), Clock()) is None
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef")
    file.chmod(0o600)
    environ = {"SLUICE_GATEWAY_SECRET_FILE": str(file), "SLUICE_GATEWAY_CA": str(tmp_path / "none")}
    config = load(environ, gateways=["a=https://x:1", "b=https://y:1"], gateway_name="a")
    with pytest.raises(StartupError, match="SLUICE_GATEWAY_CA"):
        forwarding_of(config, Clock())
