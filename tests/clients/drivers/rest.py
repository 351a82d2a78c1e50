"""The HTTP listener, as a client that wants every byte back: base64 both ways."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import httpx

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, Message, RefusedError


class Rest(Driver):
    """One HTTP connection pool on the native API."""

    name = "rest"

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self._http = httpx.Client(base_url=f"{broker.http}/api/v1", timeout=CALL_SECONDS, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        answer = self._http.request(method, path, **arguments)
        if answer.is_success:
            return answer.json() if answer.content else None
        problem = answer.json()
        assert answer.headers["content-type"].startswith("application/problem+json"), answer.text
        raise RefusedError(problem.get("kafka_error_code"), answer.text)

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        records = [{**_record(message), "partition": partition} for message in messages]
        answer = self._call("POST", f"/topics/{topic}/records", json={"records": records})
        assert len(answer["records"]) == len(messages)

    def choose_partition(self, topic: str, key: bytes) -> int:
        record = _record(Message(key, b""))
        answer = self._call("POST", f"/topics/{topic}/records", json={"records": [record]})
        return int(answer["records"][0]["partition"])

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        found: list[Message] = []
        while len(found) < count:
            asked = {"offset": offset, "limit": count - len(found), "wait_ms": 1000, "encoding": "base64"}
            answer = self._call("GET", f"/topics/{topic}/partitions/{partition}/records", params=asked)
            if not answer["records"]:
                break
            found += [_message(record) for record in answer["records"]]
            offset = answer["next_offset"]
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        answer = self._call("GET", f"/topics/{topic}/offsets", params={"at": str(timestamp)})
        offset = next(p for p in answer["partitions"] if p["partition"] == partition)["offset"]
        return None if offset is None else int(offset)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        answer = self._call("GET", f"/topics/{topic}")
        found = answer["partition_details"][partition]
        return found["earliest"], found["latest"]

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        self._call("PUT", f"/topics/{name}", json={"partitions": partitions, "configs": configs or {}})

    def topics(self) -> dict[str, int]:
        found: dict[str, int] = {}
        token = ""
        while True:
            asked = {"page_size": 1000, **({"page_token": token} if token else {})}
            answer = self._call("GET", "/topics", params=asked)
            found |= {item["name"]: item["partitions"] for item in answer["items"]}
            token = answer.get("next_page_token")
            if not token:
                return found

    def add_partitions(self, name: str, total: int) -> None:
        self._call("PATCH", f"/topics/{name}", json={"partitions": total})

    def configs(self, name: str) -> dict[str, str | None]:
        shown = self._call("GET", f"/topics/{name}")["effective_configs"]
        return {key: entry["value"] for key, entry in shown.items()}

    def set_config(self, name: str, key: str, value: str) -> None:
        self._call("PATCH", f"/topics/{name}", json={"configs": {key: value}})

    def delete_records(self, name: str, partition: int, before: int) -> int:
        offsets = [{"partition": partition, "before_offset": None if before < 0 else before}]
        answer = self._call("POST", f"/topics/{name}:truncate", json={"partitions": offsets})
        return int(answer["partitions"][0]["earliest"])

    def delete_topic(self, name: str) -> None:
        self._call("DELETE", f"/topics/{name}")


def _record(message: Message) -> dict[str, Any]:
    record: dict[str, Any] = {
        "headers": [
            {"name": name, **_encoded("value", value, "encoding")} for name, value in message.headers
        ],
        **_encoded("key", message.key, "key_encoding"),
        **_encoded("value", message.value, "value_encoding"),
    }
    if message.timestamp is not None:
        record["timestamp_ms"] = message.timestamp
    return record


def _encoded(name: str, data: bytes | None, encoding: str) -> dict[str, Any]:
    return {name: None if data is None else base64.b64encode(data).decode(), encoding: "base64"}


def _message(record: dict[str, Any]) -> Message:
    headers = tuple((header["name"], _decoded(header["value"])) for header in record["headers"])
    # A record of magic 0 has no timestamp: null here, −1 on the wire.
    timestamp = -1 if record["timestamp_ms"] is None else record["timestamp_ms"]
    return Message(_decoded(record["key"]), _decoded(record["value"]), headers, timestamp, record["offset"])


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
