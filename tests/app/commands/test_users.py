"""`sluice users` and `sluice tokens` against a broker that asks to log in, and against a stopped one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.app.commands.running import Sluice
from tests.broker_process import ROOT, BrokerProcess

SCHEME = "http?auth=basic,token"
BROKER_SCHEMES = (SCHEME,)
PASSWORD = "canary-of-a-password"

# Clients of these tests do not log in; from the first user on they would have no rights.
BROKER_OPTIONS = ("--super-user", "User:ANONYMOUS")


@pytest.fixture
def user(sluice: Sluice, request: pytest.FixtureRequest) -> str:
    """A user of this test alone."""
    name = request.node.name.replace("_", "-")[:100]
    sluice("users", "create", name, "--password-file", "-", given=PASSWORD + "\n")
    return name


def status(broker: BrokerProcess, **headers: str) -> int:
    url = f"http://127.0.0.1:{broker.ports[SCHEME]}/api/v1/topics"
    return httpx.get(url, headers=headers, trust_env=False, timeout=30).status_code


def logs_in(broker: BrokerProcess, user: str, password: str) -> bool:
    url = f"http://127.0.0.1:{broker.ports[SCHEME]}/api/v1/topics"
    return httpx.get(url, auth=(user, password), trust_env=False, timeout=30).status_code == 200


def test_a_user_is_created_listed_changed_and_deleted(
    sluice: Sluice, broker: BrokerProcess, user: str
) -> None:
    assert logs_in(broker, user, PASSWORD)
    listed = sluice("users", "list").out
    assert user in listed and "SCRAM-SHA-256, SCRAM-SHA-512" in listed
    assert user in [one["name"] for one in json.loads(sluice("users", "list", "--json").out)]
    assert (
        "is changed"
        in sluice("users", "password", user, "--password-file", "-", given="another password").out
    )
    assert not logs_in(broker, user, PASSWORD) and logs_in(broker, user, "another password")
    assert "deleted" in sluice("users", "delete", user, "--yes").out
    assert not logs_in(broker, user, "another password")
    assert "There is no user" in sluice("users", "delete", user, "--yes", code=1).err


def test_a_password_is_not_asked_for_without_a_terminal(sluice: Sluice) -> None:
    assert "--password-file" in sluice("users", "create", "nobody", code=2).err
    assert (
        "exclude" in sluice("users", "create", "nobody", "--no-password", "--password-file", "-", code=2).err
    )
    assert (
        "8 to 1024" in sluice("users", "create", "nobody", "--password-file", "-", given="short", code=1).err
    )


def test_a_token_is_printed_alone_and_ends_when_it_is_deleted(
    sluice: Sluice, broker: BrokerProcess, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sluice("tokens", "create", user, "--description", "sensor", "--days", "1")
    token = made.out.strip()
    assert token.startswith("slc_") and "\n" not in token and token not in made.err
    assert status(broker, authorization=f"Bearer {token}") == 200
    assert status(broker) == 401
    listed = sluice("tokens", "list", "--owner", user)
    assert "sensor" in listed.out and token[17:] not in listed.out
    monkeypatch.setenv("SLUICE_TOKEN", token)
    url = f"http://127.0.0.1:{broker.ports[SCHEME]}"
    assert "sensor" in sluice("tokens", "list", "--url", url).out
    assert "deleted" in sluice("tokens", "delete", token.split("_")[1]).out
    refused = sluice("tokens", "list", "--url", url, code=1)
    assert "SLUICE_TOKEN" in refused.err and token not in refused.err
    assert json.loads(sluice("tokens", "create", user, "--never-expires", "--json").out)["expires"] is None


def run(data_dir: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app", "users", "--data-dir", str(data_dir), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ}, input=given, capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
def test_a_stopped_broker_gets_a_user_and_a_running_one_does_not(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", schemes=(SCHEME,)).start()
    try:
        refused = run(process.data_dir, "create", "alice", "--password-file", "-", given=PASSWORD)
        assert refused.returncode == 1 and "in use by the process" in refused.stderr
        # No client can log in, and this start had no terminal: its token is in a file.
        file = process.data_dir / "admin-token"
        assert file.stat().st_mode & 0o777 == 0o600 and file.read_text().startswith("slc_setup_")
        assert file.read_text().strip() not in process.read_log()
        process.stop()
        made = run(process.data_dir, "create", "alice", "--password-file", "-", given=PASSWORD)
        assert made.returncode == 0, made.stderr
        assert "alice" in run(process.data_dir, "list").stdout
        process.start()
        assert logs_in(process, "alice", PASSWORD)
        assert not file.exists()
        assert process.stop() == 0
    finally:
        process.kill()
    assert "Traceback" not in process.read_log() and PASSWORD not in process.read_log()


@pytest.mark.slow
def test_another_directory_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    refused = run(tmp_path, "list")
    assert refused.returncode == 1 and "not the data directory" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_token_with_a_scope(sluice: Sluice, broker: BrokerProcess, user: str) -> None:
    given = ("--scope", "read:topic:Orders-*", "--scope", "describe:cluster", "--scope", "all:group:*")
    made = json.loads(sluice("tokens", "create", user, *given, "--json").out)
    assert made["scope"] == [
        {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "operation": operation}
        for operation, kind, name, pattern in (
            ("READ", "TOPIC", "Orders-", "PREFIXED"),
            ("DESCRIBE", "CLUSTER", "kafka-cluster", "LITERAL"),
            ("ALL", "GROUP", "*", "LITERAL"),
        )
    ]
    listed = sluice("tokens", "list", "--owner", user).out
    assert "read:topic:Orders-*, describe:cluster:kafka-cluster, all:group:*" in listed
    assert status(broker, authorization=f"Bearer {made['token']}") == 200
    for wrong in ("read", "read:topic", "read:topic:", ":topic:a", "read:"):
        assert (
            "is not like read:topic:orders" in sluice("tokens", "create", user, "--scope", wrong, code=2).err
        )
    assert sluice("tokens", "create", user, "--scope", "reed:topic:a", code=1).err
