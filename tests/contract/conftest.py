"""A client of each kind to one broker per file; `name` gives names that no other test of the file has.

The scenarios of HTTP clients run a second time over a gateway, whose cluster is that broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.contract.clients import KafkaClient, NativeClient, RestV2Client
from tests.gateway_process import GatewayAndBroker

# The users and the rights of a gateway are its own, and tested in tests/app: a cluster does not share them.
_EMBEDDED = ("test_rights.py", "test_one_user.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each scenario over a gateway, too."""
    if "broker" in metafunc.fixturenames and metafunc.definition.path.name not in _EMBEDDED:
        metafunc.parametrize("broker", ["embedded", "upstream"], indirect=True, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the scenarios in which nothing would go through the gateway: their client is one of the cluster."""
    left_out = [one for one in items if _is_past_the_gateway(one)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [one for one in items if one not in left_out]


def _is_past_the_gateway(item: pytest.Item) -> bool:
    parameters = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    if parameters.get("broker") != "upstream":
        return False
    return "client" in parameters and parameters["client"] not in (NativeClient, RestV2Client)


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, broker_process: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The broker of this file, or a gateway over it."""
    if getattr(request, "param", "embedded") == "embedded":
        yield broker_process
        return
    gateway = GatewayAndBroker(tmp_path_factory.mktemp("gateway") / "data", broker_process)
    try:
        yield gateway.start()
        died = not gateway.running
    finally:
        gateway.kill()
    log = gateway.read_log()
    assert not died and "Traceback" not in log, f"the gateway failed:\n{log[-20_000:]}"


@pytest.fixture
def client(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The client under test; parametrize it with `having(...)` and indirect=True."""
    opened = request.param(broker)
    yield opened
    opened.close()


@pytest.fixture
def kafka(broker: BrokerProcess) -> Iterator[KafkaClient]:
    """The binary client, for setting up what the client under test cannot."""
    opened = KafkaClient(broker)
    yield opened
    opened.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names for topics and groups."""
    count = 0

    def next_name() -> str:
        nonlocal count
        count += 1
        return f"{request.node.name[:120].translate(_LEGAL)}.{count}"

    return next_name


_LEGAL = str.maketrans({"[": "-", "]": "", " ": "-"})
