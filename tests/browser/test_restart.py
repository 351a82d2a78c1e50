"""The gateway stops and starts again on the same port: pages in a browser continue, without loss or duplicate."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")

# A page of our own that notes all events of a stream.
LISTEN = """
window.got = [];
window.states = [];
const source = new EventSource(arguments[0]);
source.addEventListener('record', e => got.push([JSON.parse(e.data).value, e.lastEventId]));
source.addEventListener('bye', () => states.push('bye'));
source.addEventListener('open', () => states.push('open'));
source.addEventListener('error', () => states.push(source.readyState === 2 ? 'closed' : 'again'));
"""


def test_the_consoles_tail_says_that_it_reconnects_and_continues_exactly(
    page: Page, broker: BrokerProcess, topic: str, write: Any
) -> None:
    page.tail(topic)
    write(topic, *range(50))
    page.says("count", "50 read")
    broker.stop()
    page.says("state", "Reconnecting")
    page.until(lambda: page.one("#connection").get_attribute("data-state") == "down")
    page.one("[name=value]").send_keys("while it is away")
    page.one("[data-at=produce] .primary").click()
    page.says("outcome", "cannot be reached")
    broker.start()
    write(topic, *range(50, 80))
    page.says("state", "Live")
    write(topic, *range(80, 100))
    page.one("[data-at=produce] .primary").click()
    page.says("outcome", "Written")
    page.says("count", "101 read, 101 shown")
    values = page.values()
    values.remove("while it is away")
    assert sorted(map(int, values)) == list(range(100))
    page.until(lambda: page.one("#connection").get_attribute("data-state") == "ok")


def test_an_event_source_over_many_partitions_resumes_without_loss_or_repeat(
    page: Page, broker: BrokerProcess, api: httpx.Client, write: Any
) -> None:
    api.put("/topics/many", json={"partitions": 7}).raise_for_status()
    # A page of this origin that may open connections.
    page.driver.get(f"{broker.http}/docs")
    page.run(LISTEN, "/api/v1/topics/many/records?from=latest")
    page.until(lambda: page.run("return states.length"))
    opened = "return states.filter(one => one === 'open').length"
    total = 0
    for round_, way in enumerate(("kill", "stop", "kill"), 1):
        write("many", *[{"key": f"k{n}", "value": n} for n in range(total, total + 1000)])
        total += 1000
        # Cut off wherever it is by now.
        getattr(broker, way)()
        broker.start()
        page.until(lambda wanted=round_ + 1: page.run(opened) >= wanted, "it does not come back")  # type: ignore[misc]
    write("many", *[{"key": f"k{n}", "value": n} for n in range(total, total + 1000)])
    total += 1000
    page.until(lambda: page.run("return got.length") >= total, "it did not get all")
    got = page.run("return got")
    assert sorted(value for value, _ in got) == list(range(total))
    assert len({cursor for _, cursor in got}) == total, "each event has an id of its own"
    states = page.run("return states")
    assert "bye" in states and "closed" not in states


def test_a_tail_whose_gateway_refuses_for_a_while_comes_back(
    page: Page, broker: BrokerProcess, topic: str, write: Any
) -> None:
    """A proxy that has lost its gateway answers 503: the console asks again."""
    write(topic, "before")
    page.tail(topic)
    page.run("""
        const real = fetch;
        let left = 2;
        window.fetch = async (url, options) => {
          const refused = String(url).includes('/records?') && left-- > 0;
          return refused ? new Response('{"title": "Away"}', {status: 503}) : real(url, options);
        };
    """)
    page.at("pause").click()
    write(topic, "meanwhile")
    page.at("pause").click()
    page.says("state", "Reconnecting")
    page.until(lambda: page.values() == ["before", "meanwhile"])
    page.says("state", "Live")


def test_a_topic_that_was_deleted_and_made_again_is_told_and_followed(
    page: Page, api: httpx.Client, topic: str, write: Any
) -> None:
    write(topic, "old")
    page.tail(topic)
    page.until(lambda: page.values() == ["old"])
    api.delete(f"/topics/{topic}").raise_for_status()
    page.says("state", "Stopped")
    page.hurry()
    page.says("trouble", "no topic named")
    api.put(f"/topics/{topic}", json={"partitions": 1}).raise_for_status()
    write(topic, "new")
    page.hurry()
    page.until(lambda: page.values() == ["new"])
    page.says("state", "Live")
