"""A gateway over a Kafka cluster as its users run it: a child process. See tests/broker_process.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.broker_process import BrokerProcess, ports_of


class GatewayProcess(BrokerProcess):
    """One gateway over the cluster at `bootstrap`. Kafka clients of a test go to the first address of that."""

    def __init__(
        self,
        data_dir: Path,
        bootstrap: str,
        *,
        options: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        super().__init__(data_dir, options=options, environment=environment)
        self.bootstrap = bootstrap
        self.ports = {"http": 0}

    @property
    def kafka(self) -> str:
        """The first bootstrap server of the cluster."""
        return self.bootstrap.split(",")[0]

    @property
    def kafka_address(self) -> tuple[str, int]:
        """The same for a socket."""
        host, _, port = self.kafka.rpartition(":")
        return (host, int(port))

    def _own_options(self) -> list[str]:
        return ["--upstream", self.bootstrap]

    def _ports(self, listeners: Any) -> dict[str, int]:
        return ports_of(listeners, ("http",))


class GatewayAndBroker(GatewayProcess):
    """A gateway over a broker of ours in another process, which starts first and is ended last."""

    def __init__(self, directory: Path, broker: BrokerProcess) -> None:
        super().__init__(directory, "")
        self.broker = broker

    @property
    def line_address(self) -> tuple[str, int]:
        """The listener of the line protocol of the broker."""
        return self.broker.line_address

    def start(self) -> GatewayAndBroker:
        """Start the broker unless it runs, then the gateway."""
        if not self.broker.running:
            self.broker.start()
        self.bootstrap = self.broker.kafka
        super().start()
        return self

    def read_log(self) -> str:
        """What both printed."""
        return self.broker.read_log() + super().read_log()
