"""The clients of Go: sarama, franz-go and kafka-go, in one program that tests/run.py builds of tests/clients/go."""

from __future__ import annotations

from tests.clients.driver import Driver, Message
from tests.clients.drivers.child import AdminChild
from tests.conftest import GO_CLIENTS


class GoClient(AdminChild):
    """One process of the program for all calls, with one of its libraries."""

    installed_as = "go clients"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def program(self) -> tuple[list[str], dict[str, str]]:
        return [str(GO_CLIENTS), "driver", self.name, self.broker.kafka], {}


class Sarama(GoClient):
    """sarama with an idempotent producer."""

    name = "sarama"
    idempotent = True


class FranzGo(GoClient):
    """franz-go, whose producer is idempotent by default, and its admin client kadm."""

    name = "franz-go"
    idempotent = True


class KafkaGo(GoClient):
    """kafka-go by Segment: its Writer, its Reader and its Client, which cannot delete records."""

    name = "kafka-go"
    delete_records = Driver.delete_records

    @classmethod
    def sees(cls, message: Message) -> Message:
        """It reads what is empty as null."""
        headers = tuple((name, value or None) for name, value in message.headers)
        return message._replace(key=message.key or None, value=message.value or None, headers=headers)
