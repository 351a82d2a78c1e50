"""A managed consumer, in a process of its own: `managed_member.py URL GROUP TOPIC`. It says what the others say.

The broker is the member; this process only polls and acknowledges. When it is killed, its consumer is deleted after
its time to live, and the group learns it by that.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import httpx

SESSION_MS = TTL_MS = 3000

stopping = False


def say(**event: Any) -> None:
    """One event, one line."""
    print(json.dumps(event), flush=True)


def consume(http: httpx.Client, consumer: str) -> None:
    """Poll with the token of the batch before, until told to stop."""
    owned: list[int] | None = None
    batch: dict[str, Any] = {"ack": None, "partitions": []}
    while not stopping:
        polled = http.post(f"{consumer}:poll", json={"ack": batch["ack"], "wait_ms": 200})
        if polled.status_code != 200:
            say(refused=polled.json()["type"])
            continue
        if batch["partitions"] and not polled.json()["redelivered"]:
            say(acknowledged={one["partition"]: one["next_offset"] for one in batch["partitions"]})
        batch = polled.json()
        shown = http.get(consumer).json()
        if shown["state"] == "stable" and owned != (now := [one["partition"] for one in shown["partitions"]]):
            owned = now
            say(assigned=owned)
        if not batch["redelivered"]:
            for record in batch["records"]:
                say(read=[record["partition"], record["offset"], record["value"]])
    if batch["ack"] is not None:
        http.post(f"{consumer}:ack", json={"ack": batch["ack"]})
    http.delete(consumer)


def main(url: str, group: str, topic: str) -> None:
    """Make a consumer and use it."""

    def stop(*_: object) -> None:
        global stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    with httpx.Client(base_url=url, timeout=30, trust_env=False) as http:
        made = http.post(
            f"/api/v1/groups/{group}/consumers",
            json={
                "topics": [topic],
                "ttl_ms": TTL_MS,
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": SESSION_MS,
                "encoding": "utf8",
                "assignor": "roundrobin",
            },
        )
        consume(http, made.raise_for_status().headers["location"])


main(*sys.argv[1:])
