"""Kafka's own Java client at three releases: a JVM each, which takes JSON commands as JavaClient.java says."""

from __future__ import annotations

from tests.clients.driver import Driver
from tests.clients.drivers.child import AdminChild
from tests.peers.kafka import java

#: The name of a client → the set of jars in tests/peers/fetch.py that it runs on.
JAVA_SETS = {"java-4.1": "kafka-4.1", "java-3.9": "kafka-3.9", "java-2.8": "clients-2.8"}


class JavaClient(AdminChild):
    """One JVM for all calls; the subclasses name the release."""

    installed_as = "kafka"
    idempotent = True
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def program(self) -> tuple[list[str], dict[str, str]]:
        return java(JAVA_SETS[self.name], "JavaClient", self.broker.kafka, level="off"), {}


def _release(name: str) -> type[Driver]:
    return type("JavaClient", (JavaClient,), {"__doc__": f"Kafka's Java client, {name}.", "name": name})


JAVA: tuple[type[Driver], ...] = tuple(_release(name) for name in JAVA_SETS)
