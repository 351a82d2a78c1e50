"""The parts of workers that need no process: what each one forwards, merged metrics, what the parent says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from app.__main__ import main
from app.http.request import InFlight, Request
from app.settings import load
from app.workers.merged import merge
from app.workers.policy import Part, asks_login, part_of, plain_kafka, policy_of
from app.workers.spec import Spec
from core.config import Config, Upstream
from core.errors import StartupError

OPEN = ("http://127.0.0.1:1", "kafka://127.0.0.1:2")


def config(*listeners: str, upstream: bool = False, workers: int = 3) -> Config:
    made = load({}, listeners=listeners or OPEN, workers=workers)
    return replace(made, upstream=Upstream(("127.0.0.1:9",))) if upstream else made


def request(method: str, path: str, **headers: str) -> Request:
    lines = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    scope = {"method": method, "path": path, "raw_path": path.encode(), "query_string": b""}

    async def receive() -> dict[str, Any]:
        return {}

    return Request(scope, receive, lines, Config(), InFlight(1))


@pytest.mark.parametrize(
    ("listeners", "upstream", "part"),
    [
        (OPEN, False, Part.RECORDS),
        (("http://127.0.0.1:1", "kafka://[::1]:2"), False, Part.RECORDS),
        (("http://127.0.0.1:1", "kafka://127.0.0.1:2?auth=plain"), False, Part.RELAY),
        (("http://127.0.0.1:1", "text://127.0.0.1:2"), False, Part.RELAY),
        (("http://127.0.0.1:1?auth=token", "kafka://127.0.0.1:2"), False, Part.RELAY),
        (("http://127.0.0.1:1",), True, Part.WHOLE),
        (("http://127.0.0.1:1?auth=basic",), True, Part.RELAY),
    ],
)
def test_what_a_worker_is_follows_from_the_listeners(
    listeners: tuple[str, ...], upstream: bool, part: Part
) -> None:
    made = config(*listeners, upstream=upstream)
    assert part_of(made, 0) is Part.WHOLE
    assert {part_of(made, number) for number in (1, 2)} == {part}


def test_the_kafka_listener_of_worker_0_is_found_among_its_tcp_listeners() -> None:
    listeners = (
        "http://127.0.0.1:1",
        "text://127.0.0.1:2",
        "kafka://127.0.0.1:3?auth=plain",
        "kafka://127.0.0.1:4",
    )
    assert plain_kafka(config(*listeners)) == 2
    assert plain_kafka(config(*listeners[:3])) is None
    assert not asks_login(config(*listeners))


@pytest.mark.parametrize(
    ("method", "path", "headers", "here"),
    [
        ("GET", "/livez", {}, True),
        ("GET", "/readyz", {}, False),
        ("POST", "/api/v1/topics/t/records", {}, True),
        ("GET", "/api/v1/topics/t/records", {}, True),
        ("GET", "/api/v1/topics/t/partitions/0/records/7", {}, True),
        ("POST", "/topics/t", {}, True),
        ("POST", "/topics/t/partitions/0", {}, True),
        ("POST", "/api/v1/topics/t/records", {"idempotency_key": "k"}, False),
        ("POST", "/api/v1/topics/t/records", {"transaction": "x"}, False),
        ("PUT", "/api/v1/topics/t", {}, False),
        ("POST", "/api/v1/groups/g/consumers", {}, False),
        ("GET", "/consumers/g/instances/i/records", {}, False),
        ("POST", "/api/v1/transactions", {}, False),
        ("GET", "/api/v1/users", {}, False),
        ("GET", "/docs", {}, True),
        ("GET", "/console", {}, False),
    ],
)
def test_a_worker_beside_the_broker_serves_plain_records_and_forwards_the_rest(
    method: str, path: str, headers: dict[str, str], here: bool
) -> None:
    policy = policy_of(config(), 1, 3)
    assert policy is not None
    assert (policy(request(method, path, **headers)) is None) is here
    assert policy_of(config(), 0, 3) is None


def test_a_relay_forwards_all_but_its_life_and_workers_over_a_cluster_share_groups() -> None:
    relay = policy_of(config("http://127.0.0.1:1?auth=token", "kafka://127.0.0.1:2"), 1, 3)
    assert relay is not None
    assert relay(request("GET", "/livez")) is None
    assert relay(request("POST", "/api/v1/topics/t/records")) == "0"
    shared = policy_of(config("http://127.0.0.1:1", upstream=True), 0, 3)
    assert shared is not None
    owners = {shared(request("POST", f"/consumers/g{number}")) for number in range(50)}
    assert owners == {"0", "1", "2"}
    assert shared(request("POST", "/api/v1/topics/t/records")) is None


def test_metrics_of_workers_become_one_text() -> None:
    first = (
        '# HELP a_total A.\n# TYPE a_total counter\na_total 1.0\na_total{x="1"} 2.0\n'
        "# HELP b B.\n# TYPE b gauge\nb 3\n"
    )
    second = (
        '# HELP b B.\n# TYPE b gauge\nb 4\n# HELP c C.\n# TYPE c histogram\nc_bucket{le="+Inf"} 1\nc_sum 2\n'
    )
    assert merge({"0": first, "1": second}, {"0": 1, "1": 1, "2": 0}).splitlines() == [
        "# HELP sluice_worker_up 1 if the worker has answered.",
        "# TYPE sluice_worker_up gauge",
        'sluice_worker_up{worker="0"} 1',
        'sluice_worker_up{worker="1"} 1',
        'sluice_worker_up{worker="2"} 0',
        "# HELP a_total A.",
        "# TYPE a_total counter",
        'a_total{worker="0"} 1.0',
        'a_total{x="1",worker="0"} 2.0',
        "# HELP b B.",
        "# TYPE b gauge",
        'b{worker="0"} 3',
        'b{worker="1"} 4',
        "# HELP c C.",
        "# TYPE c histogram",
        'c_bucket{le="+Inf",worker="1"} 1',
        'c_sum{worker="1"} 2',
    ]


def test_openmetrics_ends_once_and_keeps_the_names_of_its_families() -> None:
    text = '# HELP a A.\n# TYPE a counter\na_total{x="a b} c"} 1.0\n# EOF\n'
    merged = merge({"0": text, "1": text}, {"0": 1, "1": 1}).splitlines()
    assert merged[3:] == [] or merged.count("# EOF") == 1
    assert merged[-1] == "# EOF"
    assert [line for line in merged if line.startswith("a_total")] == [
        f'a_total{{x="a b}} c",worker="{number}"}} 1.0' for number in (0, 1)
    ]
    assert merged.count("# TYPE a counter") == 1


def test_a_spec_passes_a_pipe_whole() -> None:
    spec = Spec(1, 2, "/d", "ab", [[3, 4]], 5, ["/d/0", "/d/1"], 6, [9092], "127.0.0.1:9092", False)
    assert Spec.decoded(spec.encoded()) == spec
    assert spec.name == "1"


@pytest.mark.parametrize(
    ("listeners", "peers", "workers", "words"),
    [
        (OPEN, (), 0, "from 1 to 64"),
        (OPEN, (), 65, "from 1 to 64"),
        (("kafka://127.0.0.1:2",), (), 2, "there is no HTTP listener"),
        (OPEN, ("2=127.0.0.1:9093",), 2, "cannot be used with --peer"),
    ],
)
def test_a_number_of_workers_that_cannot_be_started_stops_the_start(
    listeners: tuple[str, ...], peers: tuple[str, ...], workers: int, words: str
) -> None:
    with pytest.raises(StartupError, match=words):
        load({}, listeners=listeners, peers=peers, workers=workers)


def test_a_broker_for_tests_has_no_workers() -> None:
    done = CliRunner().invoke(main, ["serve", "--ephemeral", "--workers", "2"])
    assert (done.exit_code, done.stderr) == (2, "sluice: --ephemeral is one process; leave --workers out.\n")
