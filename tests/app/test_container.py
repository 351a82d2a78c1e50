"""The container image: it opens what its command line says, and its environment opens nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.settings import load
from core.errors import StartupError
from tests.packaging.dockerfile import stages

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0


IMAGE = stages()[-1]
ENVIRONMENT = IMAGE.environment
COMMAND = IMAGE.words("CMD")


def test_the_environment_of_the_image_opens_nothing() -> None:
    assert not {"SLUICE_INSECURE", "SLUICE_LISTENERS"} & set(ENVIRONMENT)
    assert {one.host for one in load(ENVIRONMENT).listeners} == {"127.0.0.1"}


def test_listeners_that_a_user_of_the_image_names_are_refused_without_insecure() -> None:
    with pytest.raises(StartupError, match="--insecure"):
        load(ENVIRONMENT, listeners=("kafka://0.0.0.0:9092",))
    with pytest.raises(StartupError, match="--insecure"):
        load({**ENVIRONMENT, "SLUICE_LISTENERS": "http://0.0.0.0:8082"})


def test_the_command_of_the_image_serves_on_what_it_exposes(tmp_path: Path) -> None:
    """Run as the image runs it, but for the ports, which other tests may have taken."""
    assert IMAGE.last["EXPOSE"].split() == [port for one in COMMAND for port in re.findall(r":(\d+)$", one)]
    program, *arguments = [
        *IMAGE.words("ENTRYPOINT"),
        *(re.sub(r":\d+$", ":0", one) for one in COMMAND),
    ]
    assert program == "sluice" and "--insecure" in arguments
    data = tmp_path / "data"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env=inherited | {"SLUICE_DATA_DIR": str(data)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        file, deadline = data / "listeners.json", time.monotonic() + START_SECONDS
        while not file.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        served = json.loads(file.read_text())
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=START_SECONDS)
    assert [one.rpartition(":")[0] for one in served] == ["http://0.0.0.0", "kafka://0.0.0.0"], output
