"""kafkajs on Node: a child process that takes one JSON command a line and answers one line."""

from __future__ import annotations

from pathlib import Path

from tests.clients.drivers.child import AdminChild
from tests.conftest import NODE_MODULES, node_path

SCRIPT = Path(__file__).with_name("kafka_js.js")


class KafkaJs(AdminChild):
    """One Node process for all calls."""

    name = "kafkajs"
    idempotent = True
    installed_as = "kafkajs"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = False

    def program(self) -> tuple[list[str], dict[str, str]]:
        node = node_path()
        assert node is not None
        environment = {"NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        return [node, str(SCRIPT), self.broker.kafka], environment
