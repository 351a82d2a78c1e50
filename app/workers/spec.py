"""What the parent tells a worker at its start, as JSON through a pipe, and later in lines over a socket.

Lines to a worker: `adopt N` and `release N`, to accept connections of another worker that is down as well. Lines of a
worker: `ready {"ports": […], "kafka": "host:port"}`. The end of the stream tells each side that the other has ended.

This module and `app.workers.parent` import the standard library alone, so that the parent stays small.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

# The number of the descriptor that a worker reads its `Spec` from.
VARIABLE = "SLUICE_WORKER_FD"
# The number of a process that checks the settings and ends.
CHECK = -1
ADOPT, RELEASE, READY = "adopt", "release", "ready"


class Spec(NamedTuple):
    """One worker of `workers`. `number` begins with 0.

    `home` is the data directory of the settings. `secret` (hex) signs the requests that workers forward. `http` has a
    descriptor for each HTTP listener and worker. `unix` is the descriptor of this worker's own UNIX socket, `paths`
    are those of all workers. `control` is the descriptor of the socket to the parent. `ports` are those that the
    system has chosen for the TCP listeners of worker 0, `kafka` is the address of its Kafka listener. `announce`:
    print the addresses.
    """

    number: int
    workers: int
    home: str
    secret: str
    http: list[list[int]]
    unix: int
    paths: list[str]
    control: int
    ports: list[int]
    kafka: str
    announce: bool

    def encoded(self) -> bytes:
        """Return the spec as JSON."""
        return json.dumps(self._asdict()).encode()

    @staticmethod
    def decoded(text: bytes) -> Spec:
        """Return the spec of `encoded`."""
        fields: dict[str, Any] = json.loads(text)
        return Spec(**fields)

    @property
    def name(self) -> str:
        """The name of this worker among the workers: its number."""
        return str(self.number)


def own_spec() -> Spec | None:
    """Return what the parent has told this process; None if it is no worker."""
    number = os.environ.pop(VARIABLE, "")
    if not number:
        return None
    with os.fdopen(int(number), "rb") as pipe:
        return Spec.decoded(pipe.read())
