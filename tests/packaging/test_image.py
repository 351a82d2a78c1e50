"""The image, built by the steps of the Dockerfile in clean roots, and run as a container runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.version import VERSION
from tests.packaging.dockerfile import CleanRoot, replay, stages
from tests.packaging.running import PATIENCE
from tests.packaging.tree import copy_tree

# Packages are downloaded, by a machine that may be busy.
pytestmark = [pytest.mark.client("unshare"), pytest.mark.timeout(600)]
IMAGE = stages()[-1]
CREATE = ["sluice", "users", "create", "admin", "--token-file", "/data/admin-token", "--password-file", "-"]
PASSWORD = "canary of a password"
# Reads a record that it wrote, with the certificate of the image; typed by a user of the same network namespace.
TRY = f"""
import base64, json, ssl, urllib.request
url = "https://127.0.0.1:8082/api/v1/topics/hello/records"
headers = {{"authorization": "Basic " + base64.b64encode(b"admin:{PASSWORD}").decode()}}
context = ssl.create_default_context(cafile="/data/tls-default.pem")
urllib.request.urlopen(urllib.request.Request(url, b"Hello", headers), context=context).close()
read = urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context)
print([one["value"] for one in json.load(read)["records"]])
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> CleanRoot:
    """The root of the image."""
    tree = copy_tree(tmp_path_factory.mktemp("context"))
    return replay(tree, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def container(image: CleanRoot) -> Iterator[subprocess.Popen[str]]:
    """The image's own command line, running: on its own ports, in a network of its own, over a read-only root."""
    words = [*IMAGE.words("ENTRYPOINT"), *IMAGE.words("CMD")]
    with subprocess.Popen(
        image.command(words, contained=True),
        env=image.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def first(process: subprocess.Popen[str]) -> int | None:
    """The first process of the container, which `unshare` started; None before that."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else None


def enter(pid: int, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command beside a process, in its root and as its user, as a health check is run."""
    uid = str(os.stat(f"/proc/{pid}").st_uid)
    spaces = ("--mount", "--net", "--pid", "--root", "--setuid", uid, "--setgid", uid)
    return subprocess.run(
        ["nsenter", "--target", str(pid), *spaces, *words],
        env=dict(one.split("=", 1) for one in Path(f"/proc/{pid}/environ").read_text().split("\0") if one),
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def wait_healthy(process: subprocess.Popen[str]) -> int:
    """Wait until the image's health check succeeds; return the first process of the container."""
    check = json.loads(IMAGE.last["HEALTHCHECK"].partition(" CMD ")[2])
    deadline = time.monotonic() + PATIENCE
    asked = None
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stdout and process.stdout.read()
        if (pid := first(process)) is not None:
            asked = enter(pid, *check)
            if asked.returncode == 0:
                return pid
        time.sleep(0.1)
    raise AssertionError(asked)


def test_the_program_in_the_image_has_its_version(image: CleanRoot) -> None:
    assert image.run(["sluice", "--version"]).split()[-1] == VERSION


def test_a_container_is_healthy_serves_and_stops(container: subprocess.Popen[str], image: CleanRoot) -> None:
    pid = wait_healthy(container)
    uid = os.stat(f"/proc/{pid}").st_uid
    assert uid == int(IMAGE.last["USER"].partition(":")[0]) != 0
    assert "Read-only file system" in enter(pid, "touch", "/opt/new").stderr
    created = enter(pid, *CREATE, given=PASSWORD)
    assert created.stdout == "User admin created.\n", created.stderr
    tried = enter(pid, "python", "-c", TRY)
    assert tried.stdout == "['Hello']\n", tried.stderr
    data = image.directory / IMAGE.last["VOLUME"].lstrip("/")
    assert data.stat().st_uid == uid and (data / "metadata.db").is_file()
    os.kill(pid, getattr(signal, IMAGE.last["STOPSIGNAL"]))
    assert container.wait(PATIENCE) == 0
    assert container.stdout is not None
    printed = container.stdout.read()
    assert "Traceback" not in printed and "slc_" not in printed and PASSWORD not in printed
