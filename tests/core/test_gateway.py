"""A gateway's composition: start and stop over a cluster in memory, and what a start says that fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.config import Config, Upstream
from core.directory import BROKER_DATABASE, GATEWAY_DATABASE
from core.errors import BrokerError, ErrorCode, StartupError
from core.gateway import Gateway, settings_of
from core.server import Server
from core.upstream.startup import startup_error
from tests.upstream.cluster import PORT, Cluster
from tests.virtual_time import LoopClock, run

Scenario = Callable[[Cluster, Config], Awaitable[None]]


def over(tmp_path: Path, scenario: Scenario, **how: Any) -> None:
    """Run a scenario with a cluster in memory, and the settings of a gateway over it."""

    async def whole() -> None:
        async with Cluster.open(tmp_path / "cluster", LoopClock(), **how) as cluster:
            servers = tuple(f"{node.host}:{PORT}" for node in cluster.nodes.values())
            await scenario(
                cluster, Config(data_dir=tmp_path / "gateway", listeners=(), upstream=Upstream(servers))
            )

    run(whole())


def test_a_gateway_knows_its_cluster_from_start_to_stop(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, config: Config) -> None:
        gateway = Gateway(config, LoopClock(), cluster)
        assert not gateway.broker.ready
        await gateway.start()
        assert gateway.broker.ready and gateway.endpoints == []
        state = gateway.cluster_state()
        assert state.cluster_id == gateway.broker.cluster_id != ""
        assert [one.broker_id for one in state.brokers] == sorted(cluster.nodes)
        assert state.reachable and sum(one.connections for one in state.brokers) >= 1
        numbers = gateway.client_numbers()
        assert numbers.requests["Metadata"].count >= 1 and numbers.opened_connections >= 1
        gateway.drain()
        assert not gateway.broker.ready
        await gateway.stop()
        assert (config.data_dir / GATEWAY_DATABASE).is_file()
        # The lock is free: the same directory can be opened again.
        again = Gateway(config, LoopClock(), cluster)
        await again.start()
        await again.stop()

    over(tmp_path, scenario)


def test_a_second_process_and_a_broker_do_not_get_the_directory(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, config: Config) -> None:
        gateway = Gateway(config, LoopClock(), cluster)
        await gateway.start()
        with pytest.raises(StartupError, match="is in use by the process"):
            await Gateway(config, LoopClock(), cluster).start()
        await gateway.stop()
        with pytest.raises(StartupError, match="belongs to a gateway over a Kafka cluster"):
            await Server(replace(config, upstream=None), LoopClock()).start()
        (config.data_dir / BROKER_DATABASE).touch()
        with pytest.raises(StartupError, match="holds the topics of an embedded broker"):
            await Gateway(config, LoopClock(), cluster).start()

    over(tmp_path, scenario)


def test_a_start_without_an_answer_gives_up_and_frees_the_directory(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, config: Config) -> None:
        nowhere = replace(config, upstream=Upstream(("nowhere:1",), {"request.timeout.ms": "2000"}))
        for _ in range(2):
            with pytest.raises(
                StartupError, match=r"No broker of the Kafka cluster answers\. Tried nowhere:1: "
            ):
                await Gateway(nowhere, LoopClock(), cluster).start()

    over(tmp_path, scenario)


def test_a_right_that_is_missing_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster, config: Config) -> None:
        gateway = Gateway(config, LoopClock(), cluster)
        with caplog.at_level(logging.WARNING, "core.gateway"):
            await gateway.start()
        await gateway.stop()

    over(tmp_path / "open", scenario)
    assert "lacks a right" not in caplog.text
    over(tmp_path / "closed", scenario, settings={"super_users": ("User:other",)})
    assert "lacks a right: DESCRIBE on the cluster is missing" in caplog.text


@pytest.mark.parametrize(
    ("code", "why", "said"),
    [
        (ErrorCode.SASL_AUTHENTICATION_FAILED, "The login of 'u' with PLAIN: no.", "refuses the login"),
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "It offers: PLAIN.", "sasl.mechanism"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Metadata: no.", "Grant it DESCRIBE on the cluster"),
        (ErrorCode.NETWORK_EXCEPTION, "The certificate of b1 is refused: expired.", "No TLS connection"),
        (ErrorCode.NETWORK_EXCEPTION, "Connection refused", "No broker of the Kafka cluster answers"),
        (ErrorCode.REQUEST_TIMED_OUT, "too late", "No broker of the Kafka cluster answers"),
    ],
)
def test_each_failure_says_what_was_tried_and_what_to_check(code: ErrorCode, why: str, said: str) -> None:
    text = str(startup_error(BrokerError(code, why), ("b1:9092", "b2:9092")))
    assert "b1:9092, b2:9092" in text and said in text and why.rstrip(".") in text
    assert "\n" not in text and ".." not in text


def test_a_property_that_cannot_be_used_is_told_without_its_value() -> None:
    with pytest.raises(StartupError, match=r"SLUICE_UPSTREAM_CONFIG: PLAIN needs sasl.username") as refused:
        settings_of(Upstream(("b1:9092",), {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password": "s3cr3t",
        }))  # fmt: skip
    assert "s3cr3t" not in str(refused.value)
