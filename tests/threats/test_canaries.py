"""Secrets that came in by every way are in nothing that is written, but for the password's own digest in SQLite."""

from __future__ import annotations

import base64
import io
import logging
from pathlib import Path
from typing import Any

import pytest

from app.logs import ConsoleFormatter, JsonFormatter
from core.listeners.connection import RefusedError
from core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.security.scram import Mechanism, salted_password
from tests.broker_process import ROOT
from tests.core.listeners.kafka.conftest import Client
from tests.core.security.scram_client import ScramClient

from .conftest import ADMIN, PASSWORD, World

# Each is found by its first word in whatever form it is written.
RIGHT, WRONG, CHANGED = "zqcanary-right-password", "zqcanary-wrong-password", "zqcanary-changed-password"
SALTED = salted_password(Mechanism.SHA_256, "zqcanary-salted-password", b"salt", 4096)
JSON = {"content-type": "application/json"}


def forms(secret: bytes) -> set[bytes]:
    """A secret as it is, in base64 at each of three positions, in hex, and as Python and JSON write bytes."""
    shifted = {base64.b64encode(b"\0" * shift + secret)[4:-4] for shift in range(3)}
    return {secret, *shifted, secret.hex().encode(), repr(secret)[2:-1].encode()}


@pytest.fixture
def logged(world: World) -> Any:
    """All that is logged at any level, in both formats."""
    stream = io.StringIO()
    handlers = []
    for formatter in (ConsoleFormatter(), JsonFormatter()):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        # The test's own client logs what it asks for.
        handler.addFilter(lambda line: not line.name.startswith(("http", "asyncio")))
        handlers.append(handler)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    for handler in handlers:
        root.addHandler(handler)
    yield stream
    root.setLevel(level)
    for handler in handlers:
        root.removeHandler(handler)


async def tell_http(world: World) -> tuple[list[str], list[str]]:
    """Send secrets by every way of HTTP. Return what was answered, and the tokens that were made."""
    answers, made = [], []

    async def ask(method: str, path: str, body: Any = None, **headers: str) -> Any:
        return await world.http(ADMIN, method, path, body, **headers)

    async def keep(method: str, path: str, body: Any = None, **headers: str) -> None:
        answer = await ask(method, path, body, **headers)
        answers.append(f"{answer.status_code} {answer.headers} {answer.text}")

    await keep("POST", "/api/v1/users", {"name": "carol", "password": RIGHT})
    await keep("POST", "/api/v1/users", {"name": "carol", "password": RIGHT})
    await keep("PUT", "/api/v1/users/carol/password", {"password": CHANGED})
    for body in ({"password": [WRONG]}, {"passwort": WRONG}, {"password": WRONG + "\n"}, [WRONG], WRONG):
        await keep("PUT", "/api/v1/users/carol/password", body)
    await keep("POST", "/api/v1/users", f'{{"name": "x", "password": "{WRONG}"'.encode(), **JSON)
    for user, password in (("carol", CHANGED), ("carol", WRONG), ("nobody", WRONG), (WRONG, WRONG)):
        basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        await keep("GET", "/api/v1/users/carol", authorization=basic)
        await keep("GET", "/topics", authorization=basic)
    for header in (f"Bearer {WRONG}", WRONG, f"Basic {WRONG}", f"Bearer slc_{WRONG}"):
        await keep("GET", "/api/v1/topics", authorization=header)
    await keep("GET", f"/api/v1/topics?ticket={WRONG}")
    token = (await ask("POST", "/api/v1/tokens", {"owner": "carol"})).json()["token"]
    made.append(token)
    await keep("GET", "/api/v1/tokens", authorization=f"Bearer {token}")
    await keep("GET", "/api/v1/tokens")
    setup = world.app.setup.issue()
    made.append(setup)
    await keep("POST", "/api/v1/users", {"name": "late", "password": RIGHT}, authorization=f"Bearer {setup}")
    await keep("GET", "/metrics")
    return answers, made


async def tell_kafka(world: World) -> list[str]:
    """Send secrets by every way of the Kafka port. Return what was answered."""
    answers: list[str] = []
    for mechanism, token in (
        ("PLAIN", f"\0carol\0{CHANGED}"), ("PLAIN", f"\0carol\0{WRONG}"), ("PLAIN", f"\0nobody\0{WRONG}"),
        ("PLAIN", f"other\0carol\0{CHANGED}"), ("PLAIN", WRONG), ("SCRAM-SHA-256", f"n,,n={WRONG},r=\n{WRONG}"),
        (WRONG, WRONG),
    ):  # fmt: skip
        client = Client(world.listener)
        try:
            answers.append(repr(await client.ask(17, 1, SaslHandshakeRequest(mechanism))))
            answers.append(repr(await client.ask(36, 2, SaslAuthenticateRequest(token.encode()))))
        except RefusedError as error:
            answers.append(str(error))
    raw = Client(world.listener)
    await raw.ask(17, 0, SaslHandshakeRequest("PLAIN"))
    with pytest.raises(RefusedError) as refused:
        await raw.raw(f"\0carol\0{WRONG}".encode())
    answers.append(str(refused.value))
    client = await world.kafka(ADMIN)
    for name in ("dave", "a/b"):
        upsertion = ScramCredentialUpsertion(name, 1, 4096, b"salt", SALTED)
        answers.append(repr(await client.newest(51, AlterUserScramCredentialsRequest([], [upsertion]))))
    scram = Client(world.listener)
    await scram.ask(17, 1, SaslHandshakeRequest("SCRAM-SHA-256"))
    exchange = ScramClient("dave", "zqcanary-salted-password", "sha256")
    first = await scram.ask(36, 2, SaslAuthenticateRequest(exchange.first()))
    last = await scram.ask(36, 2, SaslAuthenticateRequest(exchange.final(first.auth_bytes)))
    assert last.error_code == 0, "the credential of `dave` is that of its password"
    return answers


async def test_no_secret_is_in_anything_that_is_written(world: World, logged: io.StringIO) -> None:
    answers, tokens = await tell_http(world)
    answers += await tell_kafka(world)
    secrets = [text.encode() for text in (RIGHT, WRONG, CHANGED, PASSWORD, "zqcanary")] + [SALTED]
    # The id of a token is no secret; the setup token has none.
    secrets += [text.rpartition("_" if "setup" in text else text[16])[2].encode() for text in tokens]
    written = {"log": logged.getvalue().encode(), "answers": "\n".join(answers).encode()}
    assert b"authentication failed" in written["log"], "the log is whole"
    written["repr"] = repr(vars(world.broker.users)).encode() + repr(vars(world.broker.tokens)).encode()
    await world.broker.close()
    for file in files_of(world.broker.config.data_dir):
        written[str(file)] = file.read_bytes()
    found = [
        (where, secret)
        for where, content in written.items()
        for secret in secrets
        for form in forms(secret)
        if form in content
    ]
    assert found == []


def files_of(directory: Path) -> list[Path]:
    """All files below a directory; the metadata must be among them."""
    found = [file for file in directory.rglob("*") if file.is_file()]
    assert any(file.name == "metadata.db" for file in found)
    return found


def test_a_canary_would_be_found() -> None:
    for written in (WRONG, base64.b64encode(b"\0carol\0" + WRONG.encode()).decode(), WRONG.encode().hex()):
        assert any(form in written.encode() for form in forms(WRONG.encode()))


def test_no_example_of_the_api_is_a_secret() -> None:
    """An example that looks like a token sets off scanners for secrets, and is copied into scripts."""
    document = (ROOT / "openapi" / "openapi.json").read_text()
    assert "slc_" in document
    assert not [word for word in document.split("slc_")[1:] if word[:1].isalnum()]
