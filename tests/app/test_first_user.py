"""app.first_user: the password file, and where a setup token is shown."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from app import first_user
from core.clock import ManualClock
from core.config import Config, Endpoint, TlsSettings
from core.errors import StartupError
from core.security.setup import SetupToken
from core.security.users import Users
from tests.core.security.conftest import World, world

__all__ = ["world"]
PASSWORD = "canary-of-a-password"
HTTP = Endpoint("http", "127.0.0.1", 8083, (("auth", "basic,token"),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "password"
    made.touch(mode=0o600)
    made.write_text(PASSWORD + "\n")
    return made


async def test_a_start_without_a_user_creates_admin(
    world: World, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await first_user.prepare(Config(admin_password_file=file), world.users)
    assert [user.name for user in world.users.all()] == ["admin"]
    assert await world.passwords.check("admin", PASSWORD, "::1") is not None
    assert "created the user 'admin'" in caplog.text and PASSWORD not in caplog.text
    file.write_text("another password")
    await first_user.prepare(Config(admin_password_file=file), world.users)
    assert await world.passwords.check("admin", PASSWORD, "::1") is not None


async def test_a_file_that_others_may_read_is_refused(world: World, file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(StartupError, match="chmod 600"):
        await first_user.prepare(Config(admin_password_file=file), world.users)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(StartupError, match="8 to 1024"):
        await first_user.prepare(Config(admin_password_file=file), world.users)
    with pytest.raises(StartupError, match="Cannot read"):
        await first_user.prepare(Config(admin_password_file=file / "none"), world.users)
    assert not world.users


def announced(data_dir: Path, users: Users, endpoint: Endpoint, *, terminal: bool) -> tuple[str, SetupToken]:
    setup, said = SetupToken(ManualClock(), users), list[str]()
    config = Config(data_dir=data_dir)
    first_user.announce(config, [endpoint], users, setup, terminal=terminal, say=said.append)
    return "\n".join(said), setup


async def test_a_setup_token_is_shown_on_a_terminal_or_written_to_a_file(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "admin-token"
    said, setup = announced(tmp_path, world.users, HTTP, terminal=True)
    assert setup.fits(said.split()[-1]) and not file.exists()
    said, setup = announced(tmp_path, world.users, HTTP, terminal=False)
    assert f"sluice users create admin --url http://127.0.0.1:8083 --token-file {file}\n" in said
    assert setup.fits(file.read_text().strip()) and file.stat().st_mode & 0o777 == 0o600
    assert "slc_" not in said and "slc_" not in caplog.text
    # An old token is deleted, also where none is needed any more.
    await world.users.create("alice", None)
    said, setup = announced(tmp_path, world.users, HTTP, terminal=False)
    assert said == "" and not file.exists()


async def test_the_command_for_the_first_user_names_the_certificate_of_the_broker(
    world: World, tmp_path: Path
) -> None:
    own, given = TlsSettings("own"), TlsSettings("given", tmp_path / "a.pem", tmp_path / "a.key")
    for name, ca in (("own", f" --ca {tmp_path}/tls-own.pem"), ("given", "")):
        setup, said = SetupToken(ManualClock(), world.users), list[str]()
        https = Endpoint("http", "0.0.0.0", 8443, (("auth", "token"), ("tls", name)))
        config = Config(data_dir=tmp_path, tls=(own, given))
        first_user.announce(config, [https], world.users, setup, terminal=True, say=said.append)
        assert f"sluice users create admin --url https://127.0.0.1:8443{ca}\n" in said[0]


async def test_without_a_listener_for_tokens_there_is_no_setup_token(world: World, tmp_path: Path) -> None:
    kafka = Endpoint("kafka", "127.0.0.1", 9093, (("auth", "plain"),))
    said, _ = announced(tmp_path, world.users, kafka, terminal=False)
    assert "sluice users create" in said and not (tmp_path / "admin-token").exists()
    said, _ = announced(tmp_path, world.users, Endpoint("http", "127.0.0.1", 8082), terminal=False)
    assert said == ""
