"""A Python client in a process of its own: it answers lines of JSON by the methods of an object (child.py)."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.clients.driver import RefusedError


def serve(client: Any) -> None:
    """Call the method that each line names until the input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, object]
        try:
            answer = {"result": getattr(client, command.pop("verb"))(**command)}
        except RefusedError as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        print(json.dumps(answer), flush=True)
    # Without a good-bye to brokers: some clients wait for one that does not run.
    os._exit(0)
