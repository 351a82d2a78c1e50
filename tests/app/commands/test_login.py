"""How commands log in: what is sent, what is read from where, and what no message repeats."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from app.commands.client import base_url
from app.commands.login import origin
from tests.app.commands.fake_gateway import FakeGateway, Reply
from tests.app.commands.running import Ran, run

EMPTY = {"items": []}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without credentials."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_TOKEN", raising=False)
    return tmp_path


def credentials(home: Path, text: str, mode: int = 0o600) -> Path:
    file = home / "sluice" / "credentials"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def sent(fake: FakeGateway, *options: str, given: str | None = None, url: str | None = None) -> str | None:
    """What a command sends as Authorization."""
    fake.will_answer(Reply(200, EMPTY))
    before = len(fake.requests)
    run("topics", "list", *options, url=url or fake.url, given=given)
    headers = fake.requests[before][3]
    return headers.get("authorization")


def refused(fake: FakeGateway, *options: str, code: int, url: str | None = None) -> Ran:
    """A command that ends before it sends anything."""
    before = len(fake.requests)
    ran = run("topics", "list", *options, url=url or fake.url, code=code)
    assert len(fake.requests) == before and "canary" not in ran.err + ran.out
    return ran


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def test_a_user_logs_in_with_a_password_of_a_file_or_of_standard_input(
    fake: FakeGateway, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("canary: ü\n")
    assert sent(fake, "--user", "ann", "--user-password-file", str(file)) == basic("ann:canary: ü")
    assert sent(fake, "--user", "ann", "--user-password-file", "-", given="one\ntwo\n") == basic("ann:one")
    assert "--user-password-file" in refused(fake, "--user", "ann", code=2).err
    assert "needs --user" in refused(fake, "--user-password-file", str(file), code=2).err
    assert "colon" in refused(fake, "--user", "a:b", "--user-password-file", str(file), code=2).err
    assert "No such file" in refused(fake, "--user", "ann", "--user-password-file", "/no/such", code=1).err


def test_records_follow_the_password_on_standard_input(fake: FakeGateway) -> None:
    place = {"partition": 0, "offset": 0, "timestamp": "2026-01-01T00:00:00Z", "timestamp_ms": 0}
    fake.will_answer(Reply(200, {"name": "t"}), Reply(200, {"topic": "t", "records": [place]}))
    run(
        "produce", "t", "--user", "ann", "--user-password-file", "-",
        url=fake.url, given="canary\nrecord\n", code=None,
    )  # fmt: skip
    assert {request[3]["authorization"] for request in fake.requests} == {basic("ann:canary")}
    bodies = b"".join(request[2] for request in fake.requests)
    assert b"canary" not in bodies and b"record" in bodies


def test_a_token_comes_from_a_file_before_the_environment(
    fake: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_TOKEN", "slc_environment")
    file = tmp_path / "token"
    file.write_text("slc_file\n")
    assert sent(fake, "--token-file", str(file)) == "Bearer slc_file"
    assert sent(fake) == "Bearer slc_environment"
    assert "exclude" in refused(fake, "--token-file", str(file), "--user", "ann", code=2).err
    with_user = fake.url.replace("http://", "http://ann:canary@")
    assert "exclude" in refused(fake, "--token-file", str(file), code=2, url=with_user).err
    assert sent(fake, url=with_user) == basic("ann:canary")
    file.write_text("\n")
    assert "There is no token" in refused(fake, "--token-file", str(file), code=1).err


def test_the_file_of_credentials_is_for_the_gateways_that_it_names(fake: FakeGateway, home: Path) -> None:
    other = '["https://elsewhere.example.org"]\ntoken = "canary"\n'
    credentials(home, other)
    assert sent(fake) is None
    credentials(home, f'{other}["{fake.url}/"]\ntoken = "slc_kept"\n')
    assert sent(fake) == "Bearer slc_kept"
    credentials(home, f'["{fake.url}"]\nuser = "ann"\npassword = "canary"\n')
    assert sent(fake) == basic("ann:canary")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_file_of_credentials_that_others_may_use_is_refused(
    fake: FakeGateway, home: Path, mode: int
) -> None:
    file = credentials(home, f'["{fake.url}"]\ntoken = "canary"\n', mode)
    assert f"chmod 600 {file}" in refused(fake, code=1).err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('token = "canary', "is not TOML"),
        ('["{url}"]\ntoken = "canary"\nuser = "ann"\n', "cannot be used"),
        ('["{url}"]\npasswort = "canary"\n', "cannot be used"),
        ('["{url}"]\ntoken = ["canary"]\n', "cannot be used"),
    ],
)
def test_credentials_that_cannot_be_used_are_not_repeated(
    fake: FakeGateway, home: Path, text: str, says: str
) -> None:
    credentials(home, text.replace("{url}", fake.url))
    assert says in refused(fake, code=1).err


def test_an_address_that_is_refused_is_shown_without_its_password(fake: FakeGateway) -> None:
    assert "ftp://host" in refused(fake, code=2, url="ftp://ann:canary@host").err
    refused(fake, code=2, url="http://ann:canary@host:port")


def test_addresses_are_compared_by_scheme_host_and_port() -> None:
    assert origin("https://Host/kafka") == origin("https://host:443") != origin("http://host:443")
    assert origin(base_url("localhost:8082")) == "http://localhost:8082"
