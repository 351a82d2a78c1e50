"""What a client with transactions can do, in words that all of them share: a client in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from core.errors import ErrorCode
from tests.broker_process import ROOT
from tests.clients.drivers.child import ChildDriver
from tests.clients.drivers.java_client import JAVA_SETS
from tests.conftest import GO_CLIENTS, NODE_MODULES, node_path
from tests.peers.kafka import java

#: The value of the last record of a topic: nothing comes after it, and a reader stops there.
LAST = "the last one"
_HERE = Path(__file__).parent


class Transactional(ChildDriver):
    """One client with as many producers as a test asks for, each under a name that the test gives it.

    A refusal is raised as RefusedError with Kafka's number, also where the client has an exception of its own for it.
    """

    #: How it says that a newer producer has its transactional id, or that its transaction is over.
    fenced = int(ErrorCode.PRODUCER_FENCED)
    #: The same at a commit after the time of the transaction; None for the same number.
    late: int | None = None

    def open(self, producer: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        """Make a producer and initialize its transactions."""
        self.call("open", producer=producer, transactional_id=transactional_id, timeout_ms=timeout_ms)

    def begin(self, producer: str) -> None:
        """Begin a transaction."""
        self.call("begin", producer=producer)

    def send(self, producer: str, topic: str, *values: str) -> None:
        """Send records to partition 0 and wait until the broker has acknowledged them."""
        self.call("send", producer=producer, topic=topic, values=values)

    def send_offset(self, producer: str, group: str, topic: str, offset: int) -> None:
        """Make the offset of a group in partition 0 part of the transaction; the group has no members."""
        self.call("send_offset", producer=producer, group=group, topic=topic, offset=offset)

    def commit(self, producer: str) -> None:
        """Commit the transaction."""
        self.call("commit", producer=producer)

    def abort(self, producer: str) -> None:
        """Abort the transaction."""
        self.call("abort", producer=producer)

    def values(self, topic: str, *, committed: bool) -> list[str]:
        """Every value of partition 0 before `LAST`: with read_committed, or with read_uncommitted."""
        return list(self.call("values", topic=topic, committed=committed, last=LAST))


class InPython(Transactional):
    """A client for Python. What it leaves open when the broker ends is closed with its process."""

    def program(self) -> tuple[list[str], dict[str, str]]:
        module = self.name.replace("-", "_")
        return [sys.executable, "-m", f"tests.clients.transactional.{module}", self.broker.kafka], {
            "PYTHONPATH": str(ROOT)
        }


class TransactionalConfluent(InPython):
    """librdkafka: EndTxn in version 1."""

    name = "librdkafka"
    #: KafkaError._FENCED, by which it says that the producer cannot continue.
    fenced = -144


class TransactionalKafkaPython(InPython):
    """kafka-python 3: EndTxn in version 3."""

    name = "kafka-python"


class TransactionalAioKafka(InPython):
    """aiokafka: all requests of transactions in version 0, whose errors have no word for a fenced producer."""

    name = "aiokafka"


class TransactionalKafkaJs(Transactional):
    """kafkajs: EndTxn in version 1, and the errors are as old."""

    name = "kafkajs"
    fenced = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    installed_as = "kafkajs"

    def program(self) -> tuple[list[str], dict[str, str]]:
        node = node_path()
        assert node is not None
        environment = {"NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        return [node, str(_HERE / "kafkajs.js"), self.broker.kafka], environment


class InGo(Transactional):
    """A client for Go, in the program that the other drivers have as well."""

    installed_as = "go clients"

    def program(self) -> tuple[list[str], dict[str, str]]:
        return [str(GO_CLIENTS), "transactional", self.name, self.broker.kafka], {}


class TransactionalFranzGo(InGo):
    """franz-go: transactions of the second kind (KIP-890)."""

    name = "franz-go"


class TransactionalSarama(InGo):
    """sarama: EndTxn in version 3."""

    name = "sarama"


class InJava(Transactional):
    """Kafka's own client. `log` is the file that it logs each request to."""

    installed_as = "kafka"

    @property
    def log(self) -> Path:
        """The file that it logs to."""
        return self.broker.data_dir.with_name(f"{self.name}.log")

    def program(self) -> tuple[list[str], dict[str, str]]:
        arguments = ("JavaTransactions", self.broker.kafka, str(self.log))
        return java(JAVA_SETS[self.name], *arguments, level="debug"), {}

    def identity(self, producer: str) -> tuple[int, int]:
        """Return the producer id and the epoch of a producer, which its API does not show."""
        found = self.call("identity", producer=producer)
        return found["id"], found["epoch"]

    def resume(self, producer: str, transactional_id: str, identity: tuple[int, int]) -> None:
        """Make a producer in the transaction of another one that has ended, without asking a broker."""
        number, epoch = identity
        arguments = {"transactional_id": transactional_id, "timeout_ms": 60_000, "id": number, "epoch": epoch}
        self.call("resume", producer=producer, **arguments)


class TransactionalJava39(InJava):
    """3.9, the last release that knows only the first kind."""

    name = "java-3.9"


class TransactionalJava41(InJava):
    """4.1: transactions of the second kind (KIP-890)."""

    name = "java-4.1"
    # With EndTxn 5 a broker tells an epoch that it has raised itself from that of a newer producer, as Kafka does.
    late = int(ErrorCode.INVALID_TXN_STATE)
