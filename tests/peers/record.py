"""Record what a real Kafka 4.1 answers: `python -m tests.peers.record NAME [NAME…]` writes tests/golden/data.

A recording is a script of `recorded`, run against a node of its own with the settings of that recording. Each row has
the case, the API's key, its version, the request and the answer in hex with their size in front; `user` if the
connection authenticated as one, `connection` if there are several, and `after` in place of an answer that did not
come.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.protocol.apis import APIS
from tests.golden.traffic import golden_file
from tests.peers.kafka import KafkaProcess, Tools
from tests.peers.raw import KEYS, Answer, Data, Peer, Request

MOST_BYTES = 150_000
# An answer with one of these is of a moment: the same request is sent again. COORDINATOR_LOAD_IN_PROGRESS,
# COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_LEADER_OR_FOLLOWER, CONCURRENT_TRANSACTIONS.
_PASSING = {14, 15, 16, 6, 51}
_PATIENCE = 10.0


@dataclass
class Recorder:
    """The connections of one recording, and its rows in the order of the requests."""

    node: KafkaProcess
    users: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    _peers: dict[str, Peer] = field(default_factory=dict)
    _served: dict[int, range] = field(default_factory=dict)

    def peer(self, user: str = "") -> Peer:
        """Return the connection of a user, or one of that name to the plaintext listener."""
        if user not in self._peers:
            address = ("127.0.0.1", self.node.ports["SASL" if user in self.users else "PLAINTEXT"])
            login = (user, self.users[user]) if user in self.users else None
            self._peers[user] = Peer(address, user=login, client=user or "raw")
        return self._peers[user]

    def versions(self, api: str) -> range:
        """Return the versions that the node serves."""
        if not self._served:
            self._served = self.peer().served()
        return self._served[KEYS[api]]

    def ends(self, api: str) -> list[int]:
        """Return the oldest and the newest version that the node and our codec have in common."""
        versions = [one for one in self.versions(api) if APIS[KEYS[api]].has(one)]
        return sorted({versions[0], versions[-1]})

    def ask(
        self,
        case: str,
        api: str,
        request: Request,
        *,
        versions: Iterable[int] | None = None,
        user: str = "",
        keep: bool = True,
    ) -> dict[str, Any]:
        """Ask in some versions (the newest alone if not named) and keep the rows. Returns the last answer."""
        body: dict[str, Any] = {}
        for version in self.ends(api)[-1:] if versions is None else versions:
            body = self.peer(user).ask(case, api, version, request)
            if keep:
                self.keep(self.peer(user).answers[-1], user)
        return body

    def settled(self, case: str, api: str, request: Request, **more: Any) -> dict[str, Any]:
        """The same in one version; an error that passes by itself is not kept, and asked again."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            rows = len(self.rows)
            body = self.ask(case, api, request, **more)
            if not _passing(body) or time.monotonic() > deadline:
                return body
            del self.rows[rows:]
            time.sleep(0.02)

    def keep(self, answer: Answer, user: str = "") -> None:
        """Keep one row."""
        row = {"case": answer.case, "api_key": answer.key, "version": answer.version}
        if user:
            row["user" if user in self.users else "connection"] = user
        row["request"] = _framed(answer.request)
        if answer.response is None:
            row["after"] = answer.body
        else:
            assert answer.body != "unreadable", f"{answer.case}: {answer.response.hex()}"
            row["response"] = _framed(answer.response)
        self.rows.append(row)

    def topic(self, name: str, partitions: int = 1, **configs: str) -> Any:
        """Create a topic without a row, wait until it can be written, and return its id."""
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        one = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        made = self.ask("", "CreateTopics", {"topics": [one]}, versions=[7], keep=False)
        for partition in range(partitions):
            asked = [{"name": name, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
            self.settled("", "ListOffsets", {"replica_id": -1, "topics": asked}, keep=False)
        return made["topics"][0]["topic_id"]

    def close(self) -> None:
        """Close the connections."""
        for peer in self._peers.values():
            peer.close()


def _passing(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_passing, value))
    if not isinstance(value, dict):
        return False
    return any(name.endswith("error_code") and one in _PASSING for name, one in value.items()) or any(
        map(_passing, value.values())
    )


def _framed(frame: bytes) -> str:
    return (len(frame).to_bytes(4, "big") + frame).hex()


class Recording:
    """A script and the node that it needs: settings, listeners, users with their passwords, features."""

    def __init__(
        self,
        script: Callable[[Recorder], None],
        *,
        settings: Data | None = None,
        users: dict[str, str] | None = None,
        features: tuple[str, ...] = (),
    ) -> None:
        self.script = script
        self.users = users or {}
        self.settings: dict[str, str] = {**(settings or {})}
        self.features = features
        if self.users:
            logins = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            self.settings["listener.name.sasl.plain.sasl.jaas.config"] = f"{module} required {logins};"
            self.settings["sasl.enabled.mechanisms"] = "PLAIN"

    def rows(self, directory: Path) -> list[dict[str, Any]]:
        """Run the script against a node in `directory` and return the rows."""
        listeners = ("SASL:SASL_PLAINTEXT",) if self.users else ()
        node = KafkaProcess(directory, settings=self.settings, listeners=listeners)
        recorder = Recorder(node, self.users)
        try:
            node.start()
            self._upgrade(node)
            self.script(recorder)
        finally:
            recorder.close()
            node.kill()
        return recorder.rows

    def _upgrade(self, node: KafkaProcess) -> None:
        if not self.features:
            return
        tools = Tools()
        try:
            for feature in self.features:
                main = "org.apache.kafka.tools.FeatureCommand"
                said = tools.run(main, "--bootstrap-server", node.bootstrap, "upgrade", "--feature", feature)
                assert said.exit == 0, said
        finally:
            tools.close()


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Write a recording, one row a line."""
    text = "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"
    assert len(text) <= MOST_BYTES, f"{name}: {len(text)} bytes"
    golden_file(f"kafka-4.1-{name}.json").write_text(text)
    print(f"{name}: {len(rows)} rows, {len(text)} bytes")


def main() -> None:
    """Record what the command line names."""
    from tests.peers.recorded import RECORDINGS

    for name in sys.argv[1:] or RECORDINGS:
        with tempfile.TemporaryDirectory() as directory:
            write(name, RECORDINGS[name].rows(Path(directory) / "kafka"))


if __name__ == "__main__":
    main()
