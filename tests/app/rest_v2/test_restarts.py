"""Consumer instances of v2 live on: through a stop and a start, and through a crash."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.main import create_app
from core.types import TopicPartition
from tests.app.conftest import client_of, config_for
from tests.app.rest_v2.conftest import Group, places, write
from tests.broker_process import BrokerProcess

CONFIG = {"group_initial_rebalance_delay_ms": 0}


async def test_an_instance_lives_through_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = config_for(tmp_path_factory.mktemp("again") / "data", **CONFIG)
    app = create_app(config)
    async with app.lifespan(), client_of(app) as http:
        await write(http, "t", 0, 1, 2)
        options = {"format": "json", "auto_offset_reset": "earliest", "auto_commit_enable": "false"}
        instance = await Group(http, "g").create("i", consumer_request_timeout_ms=5000, **options)
        await instance.subscribe("t")
        assert await instance.values("timeout=5000&max_bytes=1") == [0]
        await instance.call("POST", "offsets")
        chosen = await Group(http, "h").create("j", **options)
        await chosen.assign(("t", 0))
        await chosen.done("POST", "positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 2}]})
    app = create_app(config)
    async with app.lifespan(), client_of(app) as http:
        instance.http = chosen.http = http
        assert (await instance.call("GET", "subscription")).json() == {"topics": ["t"]}
        assert (
            app.shared.broker.consumers.get("g", "i").options.settings["consumer.request.timeout.ms"]
            == "5000"
        )
        assert await instance.committed("t") == 1
        assert await instance.values() == [1, 2]
        assert (await chosen.call("GET", "assignments")).json() == {"partitions": places(("t", 0))}
        assert await chosen.values() == [2]
        assert app.shared.broker.partitions.info(TopicPartition("t", 0)).offsets.high_watermark == 3


@pytest.mark.slow
async def test_an_instance_lives_through_a_crash(tmp_path: Path) -> None:
    environment = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    process = BrokerProcess(tmp_path / "data", environment=environment).start()
    try:
        async with httpx.AsyncClient(base_url=process.http, timeout=20, trust_env=False) as http:
            await write(http, "t", *range(10))
            instance = await Group(http, "g").create(
                format="json", auto_offset_reset="earliest", auto_commit_enable=False
            )
            assert instance.base_uri == f"{process.http}/consumers/g/instances/i"
            await instance.subscribe("t")
            assert await instance.values() == list(range(10))
            await instance.call("POST", "offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 5}]})
            process.kill()
            process.start()
            assert (await instance.call("GET", "subscription")).json() == {"topics": ["t"]}
            assert await instance.committed("t") == 6
            await write(http, "t", "after")
            # What was delivered and not committed may come again; nothing is left out.
            assert (await instance.values())[-1] == "after"
            await instance.done("POST", "positions/beginning", {"partitions": []})
            assert await instance.values() == [*range(10), "after"]
    finally:
        process.kill()
