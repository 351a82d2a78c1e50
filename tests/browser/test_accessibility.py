"""axe-core objects to nothing in any view: contrasts, names, roles, landmarks; light and dark, desk and phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.page import Page
from tests.conftest import axe_path

pytestmark = [pytest.mark.client("chromium"), pytest.mark.client("axe-core")]

LOOK = """
const done = arguments[arguments.length - 1];
const told = (one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 200)).join(' | ')}`;
axe.run().then((found) => done(found.violations.map(told)), (error) => done([String(error)]));
"""


@pytest.fixture
def objections(page: Page) -> Any:
    """What axe-core objects to in the page as it is."""
    script = Path(axe_path() or "").read_text()

    def look() -> Any:
        page.run(f"if (!window.axe) {{ {script} }}")
        return page.driver.execute_async_script(LOOK)

    return look


@pytest.fixture
def group(topic: str, write: Any, api: httpx.Client) -> str:
    """A group that has read something of the topic of this test."""
    write(topic, {"value": '{"a": 1}', "headers": [{"name": "h", "value": "v"}]}, {"key": "k", "value": None})
    name = f"{topic}-readers"
    read = {"offsets": [{"topic": topic, "partition": 0, "next_offset": 0}]}
    api.patch(f"/groups/{name}/offsets", json=read).raise_for_status()
    return name


def test_on_a_desk_in_the_light(page: Page, topic: str, group: str, objections: Any) -> None:
    page.open("#/topics")
    page.at("prefix").send_keys(topic)
    page.until(lambda: topic in page.text("rows"))
    assert objections() == []
    page.open("#/groups")
    page.until(lambda: group in page.text("rows"))
    assert objections() == []
    page.open("#/transactions")
    page.until(lambda: page.text("none-open") or page.text("rows"))
    assert objections() == []
    page.tail(topic)
    page.until(lambda: len(page.rows()) == 2)
    assert objections() == []
    page.browse("earliest")
    assert objections() == []
    page.at("edit").click()
    page.until(lambda: page.all(".setting"))
    assert objections() == []


def test_on_a_phone_in_the_dark(page: Page, topic: str, group: str, objections: Any) -> None:
    page.look(390, 844, "dark")
    page.open(f"#/groups/{group}")
    page.says("positions", topic)
    assert objections() == []
    page.at("reset").click()
    page.one("dialog .primary").click()
    page.says("outcome", "would change")
    assert objections() == []
    page.tail(topic)
    page.until(lambda: len(page.rows()) == 2)
    page.one("ol.records button").click()
    page.until(lambda: page.one("#record [data-at=value]").text)
    assert objections() == []
    page.close_dialog()
    for button, part in (("grow", "now"), ("remove", "held")):
        page.at(button).click()
        page.until(lambda p=part: page.text(p))  # type: ignore[misc]
        assert objections() == []
        page.close_dialog()
