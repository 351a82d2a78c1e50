"""The console in a real browser: what is written is seen, as text, and everything can be done with the keyboard."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")


def test_topics_are_listed_with_sizes_and_rates(page: Page, topic: str, write: Any) -> None:
    write(topic, *["x" * 1000] * 20)
    page.open("#/topics")
    page.at("prefix").send_keys(topic)
    row = page.until(lambda: next((r for r in page.all("table.topics tbody tr") if topic in r.text), None))
    name, partitions, records, size, rate, _ = row.find_elements(By.CSS_SELECTOR, "th, td")
    assert (name.text, partitions.text, records.text) == (topic, "2", "20")
    assert size.text.endswith("KiB")
    page.hurry()
    page.until(lambda: rate.text == "0")
    write(topic, *["x"] * 30)
    page.hurry()
    page.until(lambda: records.text == "50" and float(rate.text) > 1)
    assert row.find_element(By.CSS_SELECTOR, "svg .line").get_attribute("d").startswith("M")
    name.find_element(By.TAG_NAME, "a").click()
    page.says("name", topic)
    assert page.driver.switch_to.active_element.text == topic, "the new view's title gets the focus"


def test_a_topic_is_made_and_one_that_cannot_be_made_is_told(
    page: Page, topic: str, api: httpx.Client
) -> None:
    page.open("#/topics")
    page.at("new").click()
    page.press(topic, Keys.ENTER)
    page.says("outcome", "exists with another shape")
    page.press(Keys.CONTROL + "a", "made-here", Keys.TAB, Keys.CONTROL + "a", "5", Keys.ENTER)
    page.says("outcome", "made-here exists")
    assert api.get("/topics/made-here").json()["partitions"] == 5
    page.one("[data-at=prefix]").send_keys("made-h")
    page.until(lambda: [r.text.split()[0] for r in page.all("table.topics tbody tr")] == ["made-here"])


def test_what_the_form_writes_arrives_whole_and_is_seen_in_the_tail(
    page: Page, topic: str, api: httpx.Client
) -> None:
    page.tail(topic)
    page.type("key", "ann")
    page.type("value", '{"n": 12345678901234567890}')
    page.choose("value_encoding", "json")
    page.at("add-header").click()
    page.press("trace", Keys.TAB, "7f")
    page.type("partition", "1")
    page.one("[data-at=produce] .primary").click()
    page.says("outcome", "Written: partition 1, offset 0.")
    page.until(lambda: page.rows() == [["1:0", "ann", '{"n": 12345678901234567890}', "1 header"]])
    record = api.get(f"/topics/{topic}/partitions/1/records/0", params={"encoding": "utf8"}).json()
    assert (record["key"], record["value"]) == ("ann", '{"n": 12345678901234567890}')
    assert record["headers"] == [{"name": "trace", "value": "7f", "encoding": "utf8"}]


def test_a_record_whose_answer_was_lost_is_written_once(page: Page, topic: str, api: httpx.Client) -> None:
    page.tail(topic)
    page.run("""
        const real = fetch;
        window.fetch = async (url, options) => {
          const answer = await real(url, options);
          if (options.method !== 'POST') return answer;
          window.fetch = real;
          throw new TypeError('the answer was lost');
        };
    """)
    page.type("value", "once")
    page.press(Keys.CONTROL + Keys.ENTER)
    page.says("outcome", "is not known")
    page.press(Keys.CONTROL + Keys.ENTER)
    page.says("outcome", "Written")
    page.until(lambda: page.values() == ["once"])
    detail = api.get(f"/topics/{topic}").json()
    assert sum(one["latest"] for one in detail["partition_details"]) == 1
    page.press(Keys.CONTROL + Keys.ENTER)
    page.until(lambda: page.values() == ["once", "once"])


def test_tombstones_empty_values_and_bytes_are_told_apart(page: Page, topic: str) -> None:
    page.tail(topic)
    page.type("partition", "0")
    for kind, key, value in (("text", "", ""), ("base64", "a", "AP8="), ("none", "b", "")):
        page.choose("value_encoding", kind)
        if key:
            page.type("key", key)
        if value:
            page.type("value", value)
        page.one("[data-at=produce] .primary").click()
        page.until(
            lambda k=key: any(row[1][-1:] == k[-1:] or (not k and row[1] == "no key") for row in page.rows())
        )  # type: ignore[misc]
    assert page.rows() == [
        ["0:2", "ab", "tombstone", ""],
        ["0:1", "a", "AP8=", "base64, 2 B"],
        ["0:0", "no key", "empty", ""],
    ]


def test_a_record_that_is_refused_says_why_and_where(page: Page, topic: str) -> None:
    page.tail(topic)
    page.choose("value_encoding", "json")
    page.type("value", "{not json")
    page.press(Keys.CONTROL + Keys.ENTER)
    page.says("outcome", "not JSON")
    page.choose("value_encoding", "base64")
    page.type("value", "!")
    page.press(Keys.CONTROL + Keys.ENTER)
    page.says("outcome", "base64")
    assert page.one("[name=value]").get_attribute("aria-invalid") == "true"
    assert page.driver.switch_to.active_element.get_attribute("name") == "value"


def test_what_governs_lines_and_directions_is_seen(page: Page, topic: str, write: Any) -> None:
    write(topic, {"key": "\t", "value": "one\r\ntwo\u202eeerht\x00", "partition": 0})
    page.tail(topic)
    page.until(lambda: [row[1:3] for row in page.rows()] == [["⇥", "one↵two·eerht·"]])


def test_hostile_keys_values_and_headers_are_text(page: Page, topic: str, write: Any) -> None:
    evil = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    write(topic, {"key": evil, "value": evil, "headers": [{"name": evil, "value": evil}], "partition": 0})
    page.tail(topic)
    page.until(lambda: [row[1:3] for row in page.rows()] == [[evil, evil]])
    assert page.browse("earliest") == [evil]
    page.one("ol.records button").click()
    for part in ("key", "headers", "value"):
        page.until(lambda p=part: evil in page.one(f"#record [data-at={p}]").text)  # type: ignore[misc]
    assert page.all("main img, dialog img, main script, dialog script") == []
    assert "taken" not in page.driver.title
    refused = (
        "try { document.body.innerHTML = '<b>x</b>'; return 'done' } catch (error) { return error.name }"
    )
    assert page.run(refused) == "TypeError"
    assert any("TrustedHTML" in one for one in page.complaints())


def test_a_huge_value_is_cut_in_the_tail_and_whole_in_its_window(
    page: Page, topic: str, write: Any, tmp_path: Path
) -> None:
    value = json.dumps({"text": "x" * 900_000, "id": 12345678901234567890})
    write(topic, {"key": "k" * 5000, "value": value, "value_encoding": "text", "partition": 0})
    page.tail(topic)
    ((_, key, text, notes),) = page.until(page.rows)
    assert len(key) < 1000 and len(text) < 1000 and text.endswith("…")
    assert notes == "879 KiB"
    page.one("ol.records button").click()
    shown = page.until(
        lambda: page.run("return document.querySelector('#record [data-at=value]').textContent")
    )
    assert len(shown) == 100_000
    page.one("#record [data-at=more]").click()
    page.until(
        lambda: (
            page.run("return document.querySelector('#record [data-at=value]').textContent.length") > 900_000
        )
    )
    assert page.run("return document.querySelector('#record [data-at=value]').textContent").endswith(
        '\n  "id": 12345678901234567890\n}'
    )
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    page.one("#record [data-at=download]").click()
    file = tmp_path / f"{topic}-0-0"
    page.until(lambda: file.exists() and file.read_bytes() == value.encode())


def test_the_tail_keeps_the_last_records_alone(page: Page, topic: str, write: Any) -> None:
    page.tail(topic)
    for start in range(0, 3000, 1000):
        write(topic, *[{"value": f"v{n}", "partition": 0} for n in range(start, start + 1000)])
    page.says("count", "3,000 read, 300 shown")
    page.until(lambda: page.values() == [f"v{n}" for n in range(2700, 3000)])


def test_filters_are_applied_by_the_server_and_by_the_page(page: Page, topic: str, write: Any) -> None:
    header = [{"name": "kind", "value": "a"}]
    write(
        topic,
        *[
            {"key": f"{k}-{n}", "value": f"value {n}", "headers": header if n % 2 else []}
            for k in "xy"
            for n in range(10)
        ],
    )
    page.tail(topic)
    page.says("count", "20 read, 20 shown")
    page.at("filter").click()
    page.type("key_text", "x-")
    page.type("header_name", "kind")
    page.type("header_value", "a")
    page.press(Keys.ENTER)
    page.says("count", "5 read, 5 shown")
    assert page.at("filter").text == "Filter (2)"
    page.at("search").send_keys("VALUE 7")
    page.says("count", "5 read, 1 shown")
    write(
        topic,
        {"key": "x-new", "value": "value 8", "headers": header},
        {"key": "x-newer", "value": "value 7!", "headers": header},
    )
    page.says("count", "7 read, 2 shown")
    assert page.values() == ["value 7", "value 7!"]


def test_a_wrong_filter_is_told_and_can_be_set_right(page: Page, topic: str, write: Any) -> None:
    write(topic, "one")
    page.tail(topic)
    page.type("partitions", "7")
    page.press(Keys.ENTER)
    page.says("notice", "no partition 7")
    page.says("state", "Stopped")
    page.at("filter").click()
    page.one("#records-filters [type=reset]").click()
    page.says("state", "Live")


def test_a_pause_misses_nothing(page: Page, topic: str, write: Any) -> None:
    page.tail(topic)
    write(topic, "a", "b")
    page.until(lambda: sorted(page.values()) == ["a", "b"])
    page.at("pause").click()
    page.says("state", "Paused")
    write(topic, *"cdefgh")
    time.sleep(0.3)
    assert len(page.rows()) == 2
    page.at("pause").click()
    page.until(lambda: sorted(page.values()) == list("abcdefgh"))


def test_a_group_is_shown_with_its_members_and_its_lag(
    page: Page, topic: str, api: httpx.Client, write: Any
) -> None:
    write(topic, *[{"value": n, "partition": n % 2} for n in range(40)])
    made = api.post(
        "/groups/billing/consumers", json={"name": "worker", "topics": [topic], "start": "earliest"}
    )
    assert made.status_code == 201, made.text
    poll = "/groups/billing/consumers/worker:poll"
    batch = api.post(poll, json={"limit": 30, "wait_ms": 10_000}).json()
    api.post("/groups/billing/consumers/worker:ack", json={"ack": batch["ack"]}).raise_for_status()
    page.open("#/groups")
    row = page.until(
        lambda: next((r for r in page.all("table.groups tbody tr") if "billing" in r.text), None)
    )
    _, state, kind, members, lag, _ = row.find_elements(By.CSS_SELECTOR, "th, td")
    assert (state.text, kind.text, members.text, lag.text) == ("Stable", "Classic", "1", "10")
    row.find_element(By.TAG_NAME, "a").click()
    page.says("member-count", "1")
    assert page.text("lag") == "10"
    page.says("members", f"{topic} 0–1")
    write(topic, *[1] * 15)
    page.hurry()
    page.says("lag", "25")
    drawing = page.one(".chart svg")
    page.until(lambda: drawing.find_element(By.CSS_SELECTOR, ".line").get_attribute("d").count("L") >= 1)
    assert drawing.get_attribute("aria-label").startswith("Lag: 25 now, 25 at most")


def test_everything_can_be_reached_and_done_with_the_keyboard(page: Page, topic: str, write: Any) -> None:
    write(topic, {"value": "first", "partition": 0}, {"value": "second", "partition": 0})
    page.open("#/topics")
    page.until(lambda: page.all("table.topics tbody tr"))
    assert page.press(Keys.TAB).text == "Skip to the content"
    assert page.press(Keys.ENTER).get_attribute("id") == "main"
    # Search, "New topic", then the topics.
    link = page.press(Keys.TAB, Keys.TAB, Keys.TAB)
    assert link.tag_name == "a"
    page.tail(topic)
    page.until(lambda: len(page.rows()) == 2)
    page.at("search").click()
    assert page.press(Keys.TAB).text.endswith("second"), "Tab reaches the newest record"
    assert page.press(Keys.ARROW_DOWN).text.endswith("first")
    outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "a user of the keyboard sees the focus"
    write(topic, {"value": "third", "partition": 0})
    page.until(lambda: len(page.rows()) == 3)
    page.press(Keys.ENTER)
    page.until(lambda: page.one("#record [data-at=value]").text == "first")
    assert page.run("return document.getElementById('record').contains(document.activeElement)")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.one("body").find_element(By.ID, "record").is_displayed())
    assert page.driver.switch_to.active_element.text.endswith("first"), "and comes back to where he was"


def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    page: Page, topic: str, write: Any, api: httpx.Client
) -> None:
    write(topic, {"key": "k" * 300, "value": "v" * 3000})
    api.post("/groups/phone/consumers", json={"name": "w", "topics": [topic]})
    page.look(360, 740, "dark")
    dialogs = (("edit", "list"), ("grow", "now"), ("remove", "held"))
    for address, *opened in (
        ("#/topics",), (f"#/topics/{topic}", *dialogs), ("#/groups",), ("#/groups/phone", ("reset", "apply")),
    ):  # fmt: skip
        page.open(address)
        page.until(lambda: page.one("#connection").get_attribute("data-state") == "ok")
        fits(page, address)
        for button, part in opened:
            page.at(button).click()
            page.until(lambda p=part: page.one(f"dialog [data-at={p}]").text)  # type: ignore[misc]
            fits(page, f"{address} {button}")
            page.close_dialog()
    page.open(f"#/topics/{topic}")
    assert page.browse("earliest") == ["v" * 600 + "…"]
    fits(page, "browse")


def fits(page: Page, where: str) -> None:
    """Nothing is wider than the screen, and no control is too small for a finger."""
    wide = "return [document.documentElement, ...document.querySelectorAll('dialog[open]')]"
    assert page.run(f"{wide}.every(one => one.scrollWidth <= one.clientWidth)"), where
    small = (
        "return [...document.querySelectorAll(':is(main, dialog) :is(button, input, select)')]"
        ".filter(one => !['radio', 'checkbox'].includes(one.type))"
        ".filter(one => one.offsetHeight && one.offsetHeight < 24).length"
    )
    assert page.run(small) == 0, where


def test_the_theme_is_the_systems_until_one_is_chosen(page: Page) -> None:
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    page.open("#/topics")
    light = page.run(ground)
    page.look(1280, 900, "dark")
    dark = page.run(ground)
    assert light != dark
    page.one("#theme").send_keys("Light")
    page.until(lambda: page.run(ground) == light)
    page.open("#/topics")
    assert page.run(ground) == light
    page.one("#theme").send_keys("System")
    page.until(lambda: page.run(ground) == dark)
