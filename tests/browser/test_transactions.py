"""Transactions in a real browser: found and aborted; open records read, marked, and marked no more once they end."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")
SECONDS = 60


@pytest.fixture
def producer(broker: BrokerProcess, topic: str, write: Any) -> Producer:
    """A producer with an open transaction: one record after one that was written without."""
    write(topic, {"value": "before", "partition": 0})
    host, port = broker.kafka_address
    made = Producer({"bootstrap.servers": f"{host}:{port}", "transactional.id": topic})
    made.init_transactions(SECONDS)
    made.begin_transaction()
    made.produce(topic, "maybe", partition=0)
    assert made.flush(SECONDS) == 0
    return made


def test_an_open_transaction_is_found_and_aborted(
    page: Page, producer: Producer, topic: str, api: httpx.Client
) -> None:
    page.open("#/transactions")
    page.at("prefix").send_keys(topic)
    page.until(lambda: topic in page.text("rows"))
    page.until(lambda: len(page.all("[data-at=rows] tr")) == 1)
    assert "Open" in page.text("rows") and "1 min" in page.text("rows")
    page.one("[data-at=rows] a").click()
    page.says("state", "Open")
    page.until(lambda: page.text("partitions").split() == [topic, "0", "1"])
    page.at("abort").click()
    page.at("cancel").click()
    page.until(lambda: not page.all("dialog.sheet"))
    assert api.get(f"/transactions/{topic}").json()["state"] == "Ongoing"
    page.at("abort").click()
    page.one("dialog .danger").click()
    page.says("state", "Aborted")
    page.until(lambda: not page.all("[data-at=abort]:not([hidden])"))
    assert api.get(f"/transactions/{topic}").json()["state"] == "CompleteAbort"
    page.open("#/transactions")
    page.at("prefix").send_keys(topic)
    page.says("none", "begins with this")
    page.run("arguments[0].value = 'all'; arguments[0].dispatchEvent(new Event('change'))", page.at("which"))
    page.until(lambda: "Aborted" in page.text("rows"))


def test_a_transaction_that_has_ended_meanwhile_is_not_aborted(
    page: Page, producer: Producer, topic: str
) -> None:
    page.open(f"#/transactions/{topic}")
    page.at("abort").click()
    producer.commit_transaction(SECONDS)
    page.one("dialog .danger").click()
    page.until(lambda: "CompleteCommit" in page.one("dialog [data-at=trouble]").text)
    page.close_dialog()
    page.says("state", "Committed")


def test_open_records_are_read_if_wanted_and_marked(page: Page, producer: Producer, topic: str) -> None:
    page.tail(topic)
    page.until(lambda: page.values() == ["before"])
    page.says("partition-rows", "2 (stable 1)")
    page.choose("isolation_level", "read_uncommitted")
    page.until(lambda: page.values() == ["before", "maybe"])
    page.until(lambda: [row[3] for row in page.rows()] == ["open", ""])
    page.one("ol.records button").click()
    page.until(lambda: page.one("#record [data-at=value]").text == "maybe")
    page.close_dialog()
    assert page.browse("earliest") == ["before", "maybe"]
    assert [row[3] for row in page.rows()] == ["", "open"]
    assert page.browse("newest") == ["before", "maybe"]
    page.choose("isolation_level", "read_committed")
    page.until(lambda: [row[2:] for row in page.rows()] == [["before", ""]])
    page.choose("isolation_level", "read_uncommitted")
    page.until(lambda: [row[2:] for row in page.rows()] == [["before", ""], ["maybe", "open"]])
    producer.commit_transaction(SECONDS)
    page.until(lambda: not page.all(".tag.open"))
    page.choose("isolation_level", "read_committed")
    page.until(lambda: [row[2:] for row in page.rows()] == [["before", ""], ["maybe", ""]])
