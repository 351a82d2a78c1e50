"""A broker that an installed command serves: started, tried over HTTP, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Ample for a machine that is shared.
PATIENCE = 60.0


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without settings of Sluice and without a Python path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLUICE_", "PYTHON", "PYTEST_", "COV_")) and name != "VIRTUAL_ENV"
    }
    return kept | more


@contextmanager
def ephemeral(command: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Run a command that ends in `serve --ephemeral`; give what it tells; it must stop well at SIGTERM."""
    log = cwd / "sluice.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line, f"{command} ended with {process.wait(PATIENCE)}:\n{log.read_text()[-8000:]}"
            told = json.loads(line)
            yield told
        finally:
            # By its own number: the command may be a program that started the broker and waits for it.
            os.kill(json.loads(line)["pid"] if line else process.pid, signal.SIGTERM)
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert code == 0, log.read_text()[-8000:]
    assert "Traceback" not in log.read_text()


def fetched(url: str, body: bytes | None = None) -> bytes:
    """Return the answer of a GET, or of a POST with this body; fails unless it is 2xx."""
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=PATIENCE) as answer:
        return bytes(answer.read())


def wrote_and_read(http_url: str) -> list[str]:
    """Write a record over HTTP and return the values that its topic then holds."""
    url = f"{http_url}/api/v1/topics/hello/records"
    fetched(url, b"Hello")
    return [one["value"] for one in json.loads(fetched(url))["records"]]
