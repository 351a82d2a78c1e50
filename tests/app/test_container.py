"""The container image: its environment opens nothing; its command line asks clients to log in, over TLS.

There is no Docker where tests run. The image's own command line is run as a process, with the image's environment but
for the data directory and the ports.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from app.settings import load
from core.errors import StartupError
from tests.broker_process import ROOT
from tests.packaging.docker_lines import shown
from tests.packaging.dockerfile import stages
from tests.packaging.running import clean_environment
from tests.ports import free_ports

# Ample for a machine that is shared.
PATIENCE = 120.0
IMAGE = stages()[-1]
ENVIRONMENT = IMAGE.environment
COMMAND = IMAGE.words("CMD")
# What the image's command line was before it asked clients to log in.
FORMERLY = ["--listener", "http://0.0.0.0:8082", "--listener", "kafka://0.0.0.0:9092", "--insecure"]
PASSWORD = "canary of a password"
TOPIC = "hello"


class Container:
    """The program with the environment of the image; `/data` and the two ports are this test's own."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.log = directory / "log"
        self.http, self.kafka = free_ports(2)
        advertised = {"SLUICE_ADVERTISED": f"kafka://127.0.0.1:{self.kafka}"}
        given = {name: self.here(value) for name, value in ENVIRONMENT.items() if name != "PATH"}
        self.environment = clean_environment(**given, **advertised)
        self.process: subprocess.Popen[bytes] | None = None

    def here(self, text: str) -> str:
        """Put the directory and the ports of this test into the place of the image's."""
        text = re.sub(r"(?<![\w.])/data\b", str(self.data), text)
        return re.sub(r":8082\b", f":{self.http}", re.sub(r":9092\b", f":{self.kafka}", text))

    def sluice(self, words: list[str]) -> list[str]:
        """Return the command for words that begin with `sluice`, as in the image."""
        assert words[0] == "sluice", words
        return [sys.executable, "-m", "app", *map(self.here, words[1:])]

    def start(self, command: list[str]) -> None:
        """Start it as the image would with this CMD, and wait until the image's health check succeeds."""
        # A broker that was killed has left its own there.
        (listeners := self.data / "listeners.json").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.sluice([*IMAGE.words("ENTRYPOINT"), *command]),
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        check = json.loads(IMAGE.last["HEALTHCHECK"].partition(" CMD ")[2])
        deadline = time.monotonic() + PATIENCE
        # Before that file is there, the check fails, and costs the start of a Python.
        while not listeners.exists() or self.run(self.sluice(check)).returncode != 0:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.run(self.sluice(check)).stderr
            time.sleep(0.02)

    def run(self, command: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as `docker exec` does."""
        return subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def kill(self) -> None:
        """SIGKILL: the broker writes nothing more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def fetch(self, path: str, body: bytes | None = None, user: str = "", scheme: str = "https") -> Any:
        """Return the JSON of an answer; raises HTTPError."""
        context = (
            ssl.create_default_context(cafile=str(self.data / "tls-default.pem"))
            if scheme == "https"
            else None
        )
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.http}{path}", body)
        if user:
            request.add_header("authorization", "Basic " + base64.b64encode(user.encode()).decode())
        with urllib.request.urlopen(request, context=context, timeout=PATIENCE) as answer:
            return json.load(answer)

    def client(self, mechanism: str, **more: Any) -> dict[str, Any]:
        """Return the settings of a Kafka client."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.kafka}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.data / "tls-default.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            **more,
        }

    def values(self, mechanism: str, count: int) -> list[str]:
        """Read the first records of the topic over Kafka."""
        consumer = confluent_kafka.Consumer(
            self.client(mechanism, **{"group.id": f"of {mechanism}", "auto.offset.reset": "earliest"})
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
        consumer.close()
        return found


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    made.kill()


def test_the_environment_of_the_image_opens_nothing() -> None:
    assert not {"SLUICE_INSECURE", "SLUICE_LISTENERS"} & set(ENVIRONMENT)
    assert {one.host for one in load(ENVIRONMENT).listeners} == {"127.0.0.1"}


def test_listeners_that_a_user_of_the_image_names_are_refused_without_a_login() -> None:
    with pytest.raises(StartupError, match="--insecure"):
        load(ENVIRONMENT, listeners=("kafka://0.0.0.0:9092",))
    with pytest.raises(StartupError, match="--insecure"):
        load({**ENVIRONMENT, "SLUICE_LISTENERS": "http://0.0.0.0:8082"})


def test_the_image_is_open_to_no_client_without_a_login() -> None:
    assert not [word for word in COMMAND if "insecure" in word]
    config = load(ENVIRONMENT, tls=COMMAND[1], listeners=tuple(COMMAND[3::2]))
    assert ["--tls", "auto", *(word for one in COMMAND[3::2] for word in ("--listener", one))] == COMMAND
    assert all(one.authentication and one.tls for one in config.listeners)
    assert [str(one.port) for one in config.listeners] == IMAGE.last["EXPOSE"].split()


@pytest.mark.slow
def test_the_data_of_an_open_image_are_served_to_users_over_tls(container: Container) -> None:
    """From the volume of a former image, by the steps of the documentation, and on after a kill."""
    container.start(FORMERLY)
    container.fetch(f"/api/v1/topics/{TOPIC}/records", b"formerly", scheme="http")
    assert "can be reached from other machines" in container.log.read_text()
    container.log.unlink()
    container.kill()

    container.start(COMMAND)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        container.fetch(f"/api/v1/topics/{TOPIC}")
    # The first user, by the line that readers type; the password is asked for on their terminal.
    creations = [line[line.index("sluice") + 1 :] for line in shown("docker", "exec") if "users" in line]
    assert len({tuple(line) for line in creations}) == 1
    made = container.run([*container.sluice(creations[0]), "--password-file", "-"], PASSWORD)
    assert made.returncode == 0, made.stderr

    (url,) = {shlex.quote(line[-1]) for line in shown("curl") if line[1] == "--cacert"}
    path = url.partition("8082")[2]
    assert path == f"/api/v1/topics/{TOPIC}/records"
    container.fetch(path, b"by basic", user=f"admin:{PASSWORD}")
    producer = confluent_kafka.Producer(container.client("SCRAM-SHA-256"))
    producer.produce(TOPIC, b"by scram", partition=0)
    assert producer.flush(PATIENCE) == 0
    certificate = (container.data / "tls-default.pem").read_bytes()
    container.kill()

    container.start(COMMAND)
    assert not (container.data / "admin-token").exists()
    assert (container.data / "tls-default.pem").read_bytes() == certificate
    assert container.values("PLAIN", 3) == ["formerly", "by basic", "by scram"]
    read = container.fetch(f"/api/v1/topics/{TOPIC}/records", user=f"admin:{PASSWORD}")
    assert [one["value"] for one in read["records"]] == ["formerly", "by basic", "by scram"]
    log = container.log.read_text()
    assert "can be reached from other machines" not in log
    assert PASSWORD not in log and "slc_" not in log and "Traceback" not in log


def test_a_file_with_a_password_makes_the_first_user(container: Container, tmp_path: Path) -> None:
    """As a secret that is mounted."""
    secret = tmp_path / "admin-password"
    secret.touch(mode=0o600)
    secret.write_text(PASSWORD)
    container.environment["SLUICE_ADMIN_PASSWORD_FILE"] = str(secret)
    container.start(COMMAND)
    assert container.fetch("/api/v1/users", user=f"admin:{PASSWORD}")["items"][0]["name"] == "admin"
    assert not (container.data / "admin-token").exists()
