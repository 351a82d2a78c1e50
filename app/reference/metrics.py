"""docs/reference/metrics.md: every metric of a broker with all kinds of listeners, taken from a scrape of one."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx

from app.gateways.forwarding import Forwarding
from app.main import Application, create_app
from app.metrics import of_gateways, scraped
from app.reference.markdown import table
from app.upstream_metrics import of_cluster
from core.clock import Clock
from core.config import DEFAULT_CERTIFICATE, TLS, Config, Endpoint, TlsSettings
from core.counters import Meter
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.upstream import BrokerLink, ClientNumbers, ClusterState

_INTRODUCTION = """\
# Metrics

Written by `sluice docs` from a scrape of `/metrics`. [Monitoring](../operations/monitoring.md) says which to watch.
Names of counters end in `_total`, those of histograms in `_bucket`, `_sum` and `_count`. Metrics of listeners appear
with the first request; those of ZooKeeper with `--zookeeper`, `sluice_upstream_…` with `--upstream`.

"""
_SECONDS = 10.0
# Requests that make every metric appear: ListOffsets v1 for a partition that does not exist, a line that is
# refused, and OFFSETS of Kafka 0.7 for that partition.
_KAFKA = struct.pack(">hhihiih1siiq", 2, 1, 1, -1, -1, 1, 1, b"t", 1, 7, -1)
_LINE = b"V1|1|CONSUME|\n"
_KAFKA07 = struct.pack(">hh1siqi", 4, 1, b"t", 7, -1, 1)
_ASKED = {
    "kafka": struct.pack(">i", len(_KAFKA)) + _KAFKA,
    "text": _LINE,
    "kafka07": struct.pack(">i", len(_KAFKA07)) + _KAFKA07,
}


def page() -> str:
    """Return the page. Starts a broker in a temporary directory, on ports that the system chooses."""
    # There is no ZooKeeper, and the broker says so.
    logging.getLogger().addHandler(logging.NullHandler())
    text = asyncio.run(_scrape()) + asyncio.run(_of_a_gateway())
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    rows = []
    for name, meaning in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        plain = name.removesuffix("_total") if kinds[name] == "counter" else name
        if not name.endswith("_created"):
            rows.append((f"`{name}`", kinds[name], ", ".join(_labels(text, plain)), meaning))
    return _INTRODUCTION + table(("metric", "kind", "labels", "meaning"), sorted(rows))


async def _of_a_gateway() -> str:
    """Return what a gateway adds to a scrape, with a sample of each."""
    meter = Meter()
    by_api = {"Fetch": 0}
    state = ClusterState("id", 0, (BrokerLink(1, "b1:9092", 1, failing=False),))
    numbers = ClientNumbers({"Fetch": meter}, by_api, by_api, 0, 0, 0, 0, 0, 0)
    forwarding = Forwarding((), Clock())
    forwarding.counts.forwarded["b", "served"] = forwarding.counts.received["b"] = 0
    families = [*of_cluster(state, numbers), *of_gateways(forwarding)]
    text, _ = await scraped(families, "")
    # The rest of the text are numbers of the process.
    own = [line for line in text.decode().splitlines() if any(one.name in line for one in families)]
    return "\n".join(own) + "\n"


def _labels(text: str, name: str) -> Sequence[str]:
    found = re.search(rf"^{re.escape(name)}(?:_total|_bucket)?{{(.*)}} ", text, re.MULTILINE)
    return [label for label in re.findall(r'(\w+)="', found[1] if found else "") if label != "le"]


async def _scrape() -> str:
    with tempfile.TemporaryDirectory() as directory:
        kinds = ("kafka", "text", "kafka07")
        listeners = (
            Endpoint("http", "127.0.0.1", 0),
            Endpoint("kafka", "127.0.0.1", 0, ((TLS, DEFAULT_CERTIFICATE),)),
            *(Endpoint(kind, "127.0.0.1", 0) for kind in kinds),
        )
        config = replace(
            Config(),
            data_dir=Path(directory) / "data",
            listeners=listeners,
            tls=(TlsSettings(DEFAULT_CERTIFICATE),),
            zookeeper="127.0.0.1:9",
            log_level="error",
        )
        application = create_app(config)
        async with application.lifespan():
            for endpoint in application.server.endpoints:
                if endpoint.scheme in _ASKED and not endpoint.tls:
                    await _ask(endpoint, _ASKED[endpoint.scheme])
            await _call(application)
            body, _ = await application.metrics.scrape("")
    return body.decode()


async def _call(application: Application) -> None:
    """Make a topic, a group with lag, a refusal, and an open transaction."""
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        await http.post("/api/v1/topics/t/records", content=b"value")
        offsets = {"offsets": [{"topic": "t", "partition": 0, "next_offset": 0}]}
        await http.patch("/api/v1/groups/g/offsets", json=offsets)
        await http.get("/nothing")
    transactions = application.shared.broker.transactions
    producer = await transactions.init("t", 60_000)
    batch = build_batch(
        [NewRecord(value=b"open")], now_ms=0, producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch, base_sequence=0, transactional=True,
    )  # fmt: skip
    writing = transactions.writing("t", begins=True)
    application.shared.broker.partitions.append(
        TopicPartition("t", 0), memoryview(batch), acks=-1, transaction=writing
    )


async def _ask(endpoint: Endpoint, request: bytes) -> None:
    async with asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(request)
        await writer.drain()
        await reader.read(1)
        writer.close()
        await writer.wait_closed()
