"""Swagger UI in a real browser: from this server alone, and a request can be tried."""

from __future__ import annotations

from typing import Any

import pytest
from selenium.webdriver.common.by import By

from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")


def test_the_documentation_is_shown_and_tried_without_a_network(page: Page, topic: str, write: Any) -> None:
    write(topic, "hello")
    page.driver.get(f"{page.base_url}/docs")
    page.until(lambda: len(page.all(".opblock")) > 30)
    page.one("#operations-topics-getTopic .opblock-summary-control").click()
    page.one("#operations-topics-getTopic .try-out__btn").click()
    page.one("#operations-topics-getTopic tr[data-param-name=topic] input").send_keys(topic)
    page.one("#operations-topics-getTopic .execute").click()
    answer = page.one("#operations-topics-getTopic .live-responses-table .response")
    page.until(lambda: "200" in answer.find_element(By.CSS_SELECTOR, ".response-col_status").text)
    assert topic in answer.text
    asked = page.run("return performance.getEntriesByType('resource').map(one => one.name)")
    assert len(asked) >= 4
    assert [url for url in asked if not url.startswith((page.base_url, "data:"))] == []
