"""One Chromium for all browser tests, and a page at the broker of each test file."""

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


@pytest.fixture
def page(browser: webdriver.Chrome, broker: BrokerProcess) -> Iterator[Page]:
    """A window at this file's broker. Whatever was done, the browser has had nothing to complain of."""
    page = Page(browser, broker.http)
    page.look(1280, 900)
    page.complaints()
    yield page
    browser.get("about:blank")
    assert page.complaints() == []


@pytest.fixture(scope="module")
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
