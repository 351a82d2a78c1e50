"""Queues in a real browser: found, paused, looked into; dead letters delivered again and forgotten; deleted."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")


@pytest.fixture
def queue(topic: str, api: httpx.Client, write: Any) -> str:
    """A queue with three records, the first of them leased; what is rejected becomes a dead letter."""
    write(topic, *({"value": one, "partition": 0} for one in ("a", "b", "c")))
    wanted = {"topics": [topic], "start": "earliest", "dead_letter": {"topic": f"{topic}-dead"}}
    api.put(f"/queues/{topic}", json=wanted).raise_for_status()
    api.post(f"/queues/{topic}:receive", json={"max": 1}).raise_for_status()
    return topic


def test_a_queue_is_found_looked_into_and_paused(page: Page, queue: str, api: httpx.Client) -> None:
    page.open("#/queues")
    page.at("prefix").send_keys(queue)
    page.until(lambda: len(page.all("[data-at=rows] tr")) == 1)
    page.until(lambda: page.text("rows").split() == [queue, "Delivering", queue, "2", "1", "0", "0"])
    page.one("[data-at=rows] a").click()
    page.says("state", "Delivering")
    page.says("in-flight", "1")
    page.until(lambda: page.text("flight").split()[:5] == [queue, "0", "0", "Leased", "1"])
    page.at("pause").click()
    page.says("state", "Paused")
    assert api.get(f"/queues/{queue}").json()["paused"] is True
    page.until(lambda: page.text("pause") == "Resume")
    page.at("pause").click()
    page.says("state", "Delivering")
    assert api.get(f"/queues/{queue}").json()["paused"] is False


def test_dead_letters_are_delivered_again_or_forgotten(page: Page, queue: str, api: httpx.Client) -> None:
    def reject() -> None:
        lease = api.post(f"/queues/{queue}:receive", json={"max": 1}).json()["lease"]
        rejected = [{"lease": lease, "reason": "no such customer"}]
        api.post(f"/queues/{queue}:settle", json={"reject": rejected}).raise_for_status()

    page.open(f"#/queues/{queue}")
    page.says("no-letters", "none")
    reject()
    page.until(
        lambda: (
            page.text("letters").split() == [queue, "0", "1", *["Rejected", "no", "such", "customer", "b"]]
        )
    )
    page.at("redrive").click()
    page.says("redriven", "1 moved.")
    page.says("no-letters", "none")
    page.says("available", "2")
    reject()
    page.until(lambda: "no such customer" in page.text("letters"))
    page.at("purge").click()
    page.one("dialog .danger").click()
    page.says("no-letters", "none")


def test_a_queue_is_deleted_with_force_while_records_are_leased(
    page: Page, queue: str, api: httpx.Client
) -> None:
    page.open(f"#/queues/{queue}")
    page.at("remove").click()
    page.one("dialog .danger").click()
    page.until(lambda: "leased" in page.one("dialog [data-at=trouble]").text)
    page.one("dialog [data-at=force]").click()
    page.one("dialog .danger").click()
    page.until(lambda: not page.all("dialog.sheet"))
    page.until(lambda: page.driver.current_url.endswith("#/queues"))
    assert api.get(f"/queues/{queue}").status_code == 404
