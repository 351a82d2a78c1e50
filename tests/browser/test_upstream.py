"""The console of a gateway over another cluster: what the gateway cannot do is hidden, the rest works."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from selenium import webdriver

from tests.broker_process import BrokerProcess
from tests.browser.page import Page
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.client("chromium")


@pytest.fixture(scope="module")
def gateway(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway over the broker of the other tests."""
    process = GatewayProcess(tmp_path_factory.mktemp("gateway") / "data", broker.kafka)
    process.start()
    yield process
    process.kill()
    assert "Traceback" not in process.read_log()


@pytest.fixture
def over(browser: webdriver.Chrome, gateway: GatewayProcess) -> Iterator[Page]:
    """A window at the gateway."""
    page = Page(browser, gateway.http)
    page.look(1280, 900)
    page.complaints()
    yield page
    browser.get("about:blank")
    assert page.complaints() == []


def test_transactions_are_hidden_and_records_are_shown(over: Page, gateway: GatewayProcess) -> None:
    httpx.post(
        f"{gateway.http}/api/v1/topics/over/records", content=b"through the gateway"
    ).raise_for_status()
    over.open("#/topics")
    over.until(lambda: "over" in over.text("rows"))
    links = {link.text: link.is_displayed() for link in over.all("nav a")}
    assert links.get("Topics") and "Transactions" not in [text for text, shown in links.items() if shown]
    # An old bookmark leads to the topics, once the page knows what the gateway can do.
    over.open("#/transactions")
    over.until(lambda: "over" in over.text("rows"))
    assert all("501" in one for one in over.complaints())
    over.open("#/topics/over")
    over.until(lambda: "through the gateway" in over.one("main").text)
