"""Other HTTP stacks that do the same work, to compare with in the same run.

`python -m bench.http_yardstick fastapi FILE` is the child process: the usual way to write such a route, FastAPI
with pydantic models on uvicorn, uvloop and httptools. It checks the same body, builds the same batch, appends it
to a file and answers in the same shape; there is no broker, no limit and no metric. `bare` instead answers a
fixed text to everything: what uvicorn alone costs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import BaseModel, ConfigDict, Field

from core.records.batch import build_batch
from core.records.record import NewRecord

PATH = "/topics/{topic}/records"
Message = MutableMapping[str, Any]


class Record(BaseModel):
    """A record to be written."""

    model_config = ConfigDict(extra="forbid")
    key: str | None = None
    value: str | None = None
    partition: int | None = Field(default=None, ge=0)
    timestamp: int | None = None


class Records(BaseModel):
    """A produce body."""

    model_config = ConfigDict(extra="forbid")
    records: list[Record] = Field(min_length=1, max_length=10_000)


class Written(BaseModel):
    """Where a record is now."""

    partition: int
    offset: int
    timestamp: datetime
    timestamp_ms: int


class Answer(BaseModel):
    """The answer."""

    topic: str
    records: list[Written]


class Stack:
    """A running yardstick: its process and its port."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.ports = {"http": port}


@contextmanager
def http_stack(kind: str) -> Iterator[Stack]:
    """A yardstick server of that kind in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        command = [sys.executable, "-m", "bench.http_yardstick", kind, str(Path(directory) / "log")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            yield Stack(process.pid, int(process.stdout.readline()))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _fastapi(file: int) -> Any:
    """The application: one route."""
    from fastapi import FastAPI

    app = FastAPI(openapi_url=None)
    end = 0

    @app.post(PATH)
    async def produce(topic: str, body: Records, acks: int = 1) -> Answer:
        nonlocal end
        now = int(time.time() * 1000)
        new = [
            NewRecord(
                None if one.key is None else one.key.encode(),
                None if one.value is None else one.value.encode(),
                (),
                one.timestamp,
            )
            for one in body.records
        ]
        os.write(file, build_batch(new, now_ms=now, base_offset=end))
        at = datetime.fromtimestamp(now / 1000, UTC)
        written = [
            Written(partition=0, offset=end + index, timestamp=at, timestamp_ms=now)
            for index in range(len(new))
        ]
        end += len(new)
        return Answer(topic=topic, records=written)

    return app


async def _bare(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Reads the body and answers 13 bytes."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"13")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"Hello, world!"})


def main(kind: str, path: str) -> None:
    """Serve until killed; the port is printed."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    app = _bare if kind == "bare" else _fastapi(file)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    config = uvicorn.Config(
        app, http="httptools", loop="uvloop", ws="none", lifespan="off", log_config=None, access_log=False
    )
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
