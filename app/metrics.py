"""`/metrics` for Prometheus, and OpenMetrics if the Accept header asks for it.

The broker and the HTTP server count for themselves. A scrape collects their numbers on the event loop, in slices,
and writes the text in a thread, out of numbers alone. The library is imported by the first scrape: a process that
is never scraped does not pay for it.

Series are bounded. Labels are our own names, but for topics and groups, of which a limited number is shown
(`metrics_max_topics`, `metrics_max_group_topics`); how many are left out is a metric too.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from app.gateways.forwarding import Forwarding
from app.hosting import Host
from app.http.metrics import LoopDelay, Traffic
from app.metrics_families import Family, Meterings, Samples, Timing, add, counter, gauge, metered, timing
from app.queue_metrics import of_queues
from app.upstream_metrics import of_cluster
from app.version import VERSION
from core.counters import BOUNDS, Meter
from core.errors import ErrorCode
from core.vocabulary.holdings import Holdings
from core.vocabulary.transactions import TransactionTotals

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

# The label of an API that is not served; its key is whatever the client has sent.
_UNKNOWN_API = "unknown"


class Metrics:
    """The numbers of one process."""

    def __init__(
        self, server: Host, traffic: Traffic, delay: LoopDelay, forwarding: Forwarding | None = None
    ) -> None:
        self._forwarding = forwarding
        self._server = server
        self._broker = server.broker
        self._traffic = traffic
        self._delay = delay
        self._api_names: dict[int, str] = {}
        self._one_at_a_time = asyncio.Lock()

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """All metrics as text, and its media type, in the form that the Accept header asks for."""
        async with self._one_at_a_time:
            families = await self._families()
            return await scraped(families, accept)

    async def _families(self) -> list[Family | Timing]:
        config = self._broker.config
        families = [
            *self._kafka(),
            *self._line_commands(),
            *self._kafka07(),
            *of_http(self._traffic),
            *self._storage(),
            *self._state(),
            *self._zookeeper(),
            *self._tls(),
            *of_gateways(self._forwarding),
        ]
        if (state := self._server.cluster_state()) is not None:
            families += of_cluster(state, self._server.client_numbers())
        if self._broker.ready:
            if (totals := self._server.transaction_totals()) is not None:
                families += _transactions(totals)
            held = await self._broker.holdings(config.metrics_max_topics, config.metrics_max_group_topics)
            queues = await of_queues(
                self._broker.queues, self._broker.clock.wall_ms(), config.metrics_max_topics
            )
            families += [*queues.families, *_held(held, queues.left_out)]
        return families

    def _kafka(self) -> Iterator[Family | Timing]:
        counters = self._broker.counters
        requests: Meterings = [((self._api(key),), meter) for key, meter in counters.requests.items()]
        yield from metered("sluice_kafka", "requests of the Kafka protocol", ("api",), requests)
        errors: Samples = [
            ((self._api(key), _code_name(code)), count) for (key, code), count in counters.errors.items()
        ]
        yield Family("counter", "sluice_kafka_errors", "Error codes in answers.", ("api", "error"), errors)
        loads = self._server.load()
        for kind, name, meaning, values in (
            ("gauge", "connections", "Open connections.", [one.connections for one in loads]),
            ("gauge", "inflight_bytes", "Bytes of frames that are arriving.", [one.inflight_bytes for one in loads]),
            ("counter", "accepted_connections", "Connections taken.", [one.accepted for one in loads]),
            ("counter", "refused_connections", "Connections refused or ended by us.", [one.refused for one in loads]),
        ):  # fmt: skip
            by_scheme: dict[str, int] = {}
            for load, value in zip(loads, values, strict=True):
                by_scheme[load.scheme] = by_scheme.get(load.scheme, 0) + value
            yield Family(
                kind, f"sluice_tcp_{name}", meaning, ("door",), [((s,), v) for s, v in by_scheme.items()]
            )

    def _tls(self) -> Iterator[Family | Timing]:
        states = [one.state for one in self._server.certificates.by_name().values()]
        if not states:
            return
        not_after: Samples = [((one.name,), one.not_after_ms / 1000) for one in states]
        yield Family(
            "gauge",
            "sluice_tls_certificate_not_after_seconds",
            "When the certificate expires, in seconds since the epoch.",
            ("certificate",),
            not_after,
        )
        loads: Samples = [
            ((one.name, result), count)
            for one in states
            for result, count in (("loaded", one.loaded), ("refused", one.refused))
        ]
        yield Family(
            "counter",
            "sluice_tls_certificate_loads",
            "Certificates loaded, and changed files that cannot be used.",
            ("certificate", "result"),
            loads,
        )
        listeners = [*(("http", one) for one in self._traffic.handshakes), *self._server.handshakes()]
        done: dict[tuple[str, str], int] = {}
        under_way: dict[str, int] = {}
        for scheme, one in listeners:
            under_way[scheme] = under_way.get(scheme, 0) + one.under_way
            for result, count in (("completed", one.completed), ("failed", one.failed)):
                done[scheme, result] = done.get((scheme, result), 0) + count
        yield Family(
            "counter", "sluice_tls_handshakes", "TLS handshakes.", ("listener", "result"), [*done.items()]
        )
        yield Family(
            "gauge",
            "sluice_tls_handshakes_in_progress",
            "TLS handshakes under way.",
            ("listener",),
            [((scheme,), count) for scheme, count in under_way.items()],
        )

    def _line_commands(self) -> Iterator[Family | Timing]:
        counters = self._broker.counters
        if not counters.lines:
            return  # most brokers have no such listener
        lines: Meterings = [((command,), meter) for command, meter in counters.lines.items()]
        yield from metered("sluice_text", "requests of the line protocol", ("command",), lines)
        errors: Samples = [(key, count) for key, count in counters.line_errors.items()]
        yield Family("counter", "sluice_text_errors", "Refused lines.", ("command", "code"), errors)

    def _kafka07(self) -> Iterator[Family | Timing]:
        counters = self._broker.counters
        if not counters.kafka07:
            return
        requests: Meterings = [((name,), meter) for name, meter in counters.kafka07.items()]
        yield from metered("sluice_kafka07", "requests of Kafka 0.7", ("request",), requests)
        errors: Samples = [(key, count) for key, count in counters.kafka07_errors.items()]
        yield Family(
            "counter", "sluice_kafka07_errors", "Error codes in answers.", ("request", "error"), errors
        )

    def _api(self, key: int) -> str:
        name = self._api_names.get(key)
        if name is None:
            name = self._api_names[key] = self._server.api_name(key) if key >= 0 else _UNKNOWN_API
        return name

    def _storage(self) -> Iterator[Family | Timing]:
        counters = self._broker.counters
        yield timing("sluice_fsync_duration_seconds", "fsyncs of logs.", counters.fsyncs)
        yield counter("sluice_fsync_failures", "fsyncs of logs that failed.", counters.failed_fsyncs)
        yield counter(
            "sluice_positions_cut_back",
            "Positions of groups and managed consumers beyond the end of a log, moved back to it.",
            counters.positions_cut_back,
        )
        yield timing(
            "sluice_sqlite_commit_duration_seconds", "Transactions of the metadata store.", counters.commits
        )
        yield counter("sluice_sqlite_jobs", "Jobs in these transactions.", counters.committed_jobs)

    def _zookeeper(self) -> Iterator[Family]:
        numbers = self._server.zookeeper_numbers()
        for make, name, meaning in (
            (gauge, "registered", "1 while the broker is registered in ZooKeeper."),
            (gauge, "nodes", "Nodes that it keeps there."),
            (gauge, "groups", "Groups of Kafka 0.7 that were found there."),
            (counter, "lost_sessions", "Sessions with ZooKeeper that ended unwanted."),
        ):
            if name in numbers:
                yield make(f"sluice_zookeeper_{name}", meaning, numbers[name])

    def _state(self) -> Iterator[Family | Timing]:
        yield Family(
            "gauge", "sluice_build_info", "What runs.", ("version", "python"),
            [((VERSION, platform.python_version()), 1)],
        )  # fmt: skip
        yield gauge("sluice_ready", "1 while traffic is welcome.", int(self._broker.ready))
        yield gauge("sluice_waiting_polls", "Long polls that wait.", len(self._broker.purgatory))
        yield timing(
            "sluice_event_loop_delay_seconds", "How late the event loop runs what is due.", self._delay.meter
        )


def of_http(traffic: Traffic) -> Iterator[Family | Timing]:
    """Return what an HTTP server counts."""
    by_route: dict[tuple[str, str], Meter] = {}
    statuses: Samples = []
    for (method, route, status), meter in traffic.meters.items():
        statuses.append(((method, route, str(status)), meter.count))
        add(by_route.setdefault((method, route), Meter()), meter)
    meters: Meterings = [*by_route.items()]
    yield Family(
        "counter",
        "sluice_http_requests",
        "HTTP requests answered.",
        ("method", "route", "status"),
        statuses,
    )
    yield from metered("sluice_http", "HTTP requests", ("method", "route"), meters, counted=False)
    yield Family(
        "counter",
        "sluice_http_refusals",
        "HTTP requests refused, by the type of problem (`/problems` lists them), or by a code of v2.",
        ("problem",),
        [((kind,), count) for kind, count in traffic.refusals.items()],
    )
    yield gauge("sluice_http_requests_in_progress", "HTTP requests under way.", traffic.in_progress)
    yield gauge("sluice_http_connections", "Open HTTP connections.", traffic.connections)
    yield gauge("sluice_http_inflight_bytes", "Bytes of bodies that are held.", traffic.in_flight.held)
    dropped = traffic.visits.dropped if traffic.visits is not None else 0
    yield counter(
        "sluice_access_log_dropped_lines",
        "Lines that the access log dropped because its queue was full.",
        dropped,
    )


def of_gateways(forwarding: Forwarding | None) -> Iterator[Family]:
    """Return what was forwarded to other gateways, and came from them."""
    if forwarding is None:
        return
    counts = forwarding.counts
    yield Family(
        "counter",
        "sluice_forwarded_requests",
        "Requests forwarded to their owner, another gateway. `unreachable` and `lost` were answered 503.",
        ("gateway", "result"),
        [*counts.forwarded.items()],
    )
    yield Family(
        "counter",
        "sluice_received_forwards",
        "Requests that other gateways have forwarded to this one.",
        ("gateway",),
        [((sender,), count) for sender, count in counts.received.items()],
    )


async def scraped(families: Iterable[Family | Timing], accept: str) -> tuple[bytes, str]:
    """Return the text of families and of this process, and its media type. A thread writes it."""
    return await asyncio.get_running_loop().run_in_executor(None, text_of, families, accept)


def _held(held: Holdings, queues_left_out: int = 0) -> Iterator[Family]:
    yield gauge("sluice_topics", "Topics.", len(held.topics) + held.topics_left_out)
    yield gauge("sluice_partitions", "Partitions.", held.partitions)
    yield gauge("sluice_open_logs", "Logs that are open.", held.open_logs)
    yield gauge("sluice_groups", "Groups.", held.groups)
    by_topic = ("topic",)
    for name, meaning, samples in (
        ("sluice_topic_partitions", "Partitions.", [((t.name,), t.partitions) for t in held.topics]),
        ("sluice_topic_log_bytes", "Bytes of log.", [((t.name,), t.size) for t in held.topics if t.size is not None]),
        ("sluice_topic_end_offsets", "Sum of the end offsets.", [((t.name,), t.offsets) for t in held.topics]),
        ("sluice_topic_kept_offsets", "End offsets less start offsets.", [((t.name,), t.kept) for t in held.topics]),
    ):  # fmt: skip
        yield Family("gauge", name, f"{meaning} Over all partitions.", by_topic, [*samples])
    yield Family(
        "gauge",
        "sluice_group_lag",
        "Offsets between what was committed and the last stable offset, over the partitions of a topic.",
        ("group", "topic"),
        [((lag.group, lag.topic), lag.lag) for lag in held.lags],
    )
    yield Family(
        "gauge",
        "sluice_unstable_offsets",
        "Offsets from the last stable offset to the high watermark of a partition with an open transaction.",
        ("topic", "partition"),
        [((one.topic, str(one.partition)), one.offsets) for one in held.unstable],
    )
    yield gauge("sluice_pending_offsets", "Offsets that open transactions hold.", held.pending_offsets)
    left_out: Samples = [
        (("topics",), held.topics_left_out),
        (("group_topics",), held.lags_left_out),
        (("unstable_partitions",), held.unstable_left_out),
        (("queues",), queues_left_out),
    ]
    yield Family("gauge", "sluice_metrics_left_out", "Series beyond the limits.", ("what",), left_out)


def _transactions(totals: TransactionTotals) -> Iterator[Family]:
    for name, meaning, number in (
        ("transactional_ids", "Transactional ids that are kept.", totals.ids),
        ("open_transactions", "Open transactions.", totals.open),
        (
            "oldest_transaction_seconds",
            "Age of the oldest open transaction; 0 if none.",
            totals.oldest_ms / 1000,
        ),
        (
            "late_transactions",
            "Transactions that are open for 5 minutes longer than any may be.",
            totals.late,
        ),
        ("unmarked_transactions", "Ended transactions whose markers are not on disk yet.", totals.unmarked),
    ):
        yield gauge(f"sluice_{name}", meaning, number)
    yield Family(
        "counter",
        "sluice_ended_transactions",
        "Transactions that have ended. `aborted` is by the client; `timed_out`, `fenced` by a new client and "
        "`terminated` by an administrator are aborts too.",
        ("outcome",),
        [((outcome.value,), count) for outcome, count in totals.ended.items()],
    )
    yield counter(
        "sluice_hanging_transactions_aborted",
        "Open transactions without a transactional id that were found in a partition and aborted.",
        totals.hanging,
    )


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


# --- in a thread: numbers → text ---------------------------------------------------------------------------


class _Collector:
    """Hands the numbers of one scrape to the library."""

    def __init__(self, families: Iterable[Family | Timing]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """The families as the library has them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for family in self._families:
            if isinstance(family, Timing):
                histogram = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
                for labels, buckets, seconds in family.samples:
                    histogram.add_metric(labels, _cumulative(buckets), seconds)
                yield histogram
                continue
            maker: Any = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = maker(family.name, family.meaning, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric(labels, value)
            yield metric


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    sums, total = [], 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), buckets, strict=True):
        total += count
        sums.append((bound, float(total)))
    return sums


def _registry(families: Iterable[Family | Timing]) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def text_of(families: Iterable[Family | Timing], accept: str) -> tuple[bytes, str]:
    """Return families as text, and its media type, in the form that an Accept header asks for. Run it in a thread."""
    from prometheus_client.exposition import choose_encoder

    encode, media_type = choose_encoder(accept)
    return encode(_registry(families)), media_type
