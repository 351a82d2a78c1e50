"""One Chromium and one broker for all browser tests; each has topics of its own, and a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from selenium import webdriver

from tests.broker_process import BrokerProcess
from tests.browser.page import Page, chromium
from tests.conftest import chromium_path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """The browser."""
    binary, driver = chromium_path(), shutil.which("chromedriver")
    assert binary and driver
    with chromium(binary, driver, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[BrokerProcess]:
    """The broker; a test that stops it starts it again."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    try:
        yield process.start()
    finally:
        process.kill()
        log = process.read_log()
        if request.session.testsfailed:
            print(f"\n--- log of the broker of the browser tests ---\n{log[-20_000:]}")
    assert "Traceback" not in log, f"the broker's log holds a traceback:\n{log[-20_000:]}"


@pytest.fixture
def page(browser: webdriver.Chrome, broker: BrokerProcess) -> Iterator[Page]:
    """A window at the broker. Whatever was done, the browser has had nothing to complain of."""
    page = Page(browser, broker.http)
    page.look(1280, 900)
    page.complaints()
    yield page
    browser.get("about:blank")
    assert page.complaints() == []


@pytest.fixture(scope="session")
def api(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """The HTTP API, for what happens beside the browser."""
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=20) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest, api: httpx.Client) -> str:
    """A topic of this test alone, with two partitions."""
    name: str = request.node.name[:200].replace("[", "-").replace("]", "")
    api.put(f"/topics/{name}", json={"partitions": 2}).raise_for_status()
    return name


@pytest.fixture
def write(api: httpx.Client) -> Any:
    """Writes records to a topic: dictionaries, or values alone."""

    def write(topic: str, *records: Any) -> None:
        whole = [r if isinstance(r, dict) else {"value": r} for r in records]
        api.post(f"/topics/{topic}/records", json={"records": whole}).raise_for_status()

    return write
