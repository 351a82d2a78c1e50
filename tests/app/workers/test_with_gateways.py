"""`--workers` together with `--gateway`: two gateways of two workers each, and clients that use both in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.gateway_process import GatewayProcess
from tests.ports import free_ports


@pytest.fixture
def gateways(tmp_path: Path, broker_process: BrokerProcess) -> Iterator[list[GatewayProcess]]:
    """Both gateways, over the broker of this file."""
    secret = tmp_path / "secret"
    secret.write_text("a secret that all gateways share")
    secret.chmod(0o600)
    ports = dict(zip("ab", free_ports(2), strict=True))
    named = [f"--gateway={name}=http://127.0.0.1:{port}" for name, port in ports.items()]
    made = []
    try:
        for name, port in ports.items():
            process = GatewayProcess(
                tmp_path / name,
                broker_process.kafka,
                options=("--workers=2", *named, f"--gateway-name={name}"),
                environment={"SLUICE_GATEWAY_SECRET_FILE": str(secret)},
            )
            process.ports = {"http": port}
            made.append(process)
            process.start()
        yield made
    finally:
        for process in made:
            process.kill()
    assert not any("Traceback" in process.read_log() for process in made)


@pytest.mark.slow
def test_every_gateway_and_worker_reaches_the_owner(gateways: list[GatewayProcess]) -> None:
    # A connection for each request, so that every worker gets some.
    limits = httpx.Limits(max_keepalive_connections=0)
    clients = [
        httpx.Client(base_url=f"{one.http}/api/v1", timeout=60, trust_env=False, limits=limits)
        for one in gateways
    ]
    turn = itertools.cycle(clients)
    groups = [f"g{number}" for number in range(8)]
    assert next(turn).put("/topics/t", json={"partitions": 2}).status_code == 201
    for number in range(8):
        key = {"idempotency-key": f"key-{number}"}
        answers = [
            next(turn).post("/topics/t/records", json={"value": f"v{number}"}, headers=key) for _ in range(4)
        ]
        assert {one.status_code for one in answers} == {200}
        # Written once: the others are the stored answer, from wherever they were asked.
        assert len({one.text for one in answers}) == 1
        assert [one.headers.get("idempotent-replayed") for one in answers] == [None, "true", "true", "true"]
    for group in groups:
        url = f"/groups/{group}/consumers"
        made = next(turn).post(url, json={"name": "c", "topics": ["t"], "start": "earliest"})
        assert made.status_code == 201, made.text
        seen: list[str] = []
        body: dict[str, object] = {"wait_ms": 10_000, "limit": 3}
        while len(seen) < 8:
            batch = next(turn).post(f"{url}/c:poll", json=body).json()
            seen += [one["value"] for one in batch["records"]]
            body["ack"] = batch["ack"]
        assert sorted(seen) == [f"v{number}" for number in range(8)]
        assert next(turn).delete(f"{url}/c").status_code == 204
    for client in clients:
        client.close()
