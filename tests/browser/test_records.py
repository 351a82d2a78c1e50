"""The records of a topic in a real browser: the newest at once, then live; and pages by offset and by time."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from selenium.webdriver.common.by import By

from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")

# The time of record 0; record n is n seconds younger. All are young enough for retention to leave them alone.
BEGIN_MS = (int(time.time()) - 3600) * 1000


def numbered(count: int, *, partitions: int = 2, start: int = 0) -> list[dict[str, Any]]:
    """Return records with their number as value, a second apart, over partitions in turn."""
    return [
        {"key": f"k{n % 10}", "value": f"{n}", "partition": n % partitions, "timestamp": BEGIN_MS + 1000 * n}
        for n in range(start, start + count)
    ]


def texts(numbers: range) -> list[str]:
    """Return the values of records with these numbers."""
    return [str(number) for number in numbers]


def test_a_topic_opens_with_its_newest_records_by_time_and_then_follows(
    page: Page, topic: str, write: Any
) -> None:
    write(topic, *numbered(1000))
    page.tail(topic)
    page.says("count", "300 read, 300 shown")
    assert page.values() == texts(range(700, 1000))
    write(topic, {"value": "live", "partition": 1})
    page.until(lambda: page.values()[-2:] == ["999", "live"])


def test_a_busy_partition_gives_what_idle_ones_do_not_have(page: Page, topic: str, write: Any) -> None:
    write(topic, {"value": "old", "partition": 0, "timestamp": BEGIN_MS - 1000}, *numbered(500, partitions=1))
    write(topic, {"value": "other", "partition": 1, "timestamp": BEGIN_MS + 400_500})
    page.tail(topic)
    page.says("count", "300 read, 300 shown")
    values = page.values()
    assert values[-101:] == ["400", "other", *texts(range(401, 500))][-101:]
    assert values[0] == "201"


def test_a_topic_without_records_says_how_to_write_one(page: Page, topic: str, write: Any) -> None:
    page.tail(topic)
    page.says("empty-text", "This topic has no records")
    assert f"/topics/{topic}/records" in page.text("curl")
    write(topic, "first")
    page.until(lambda: page.values() == ["first"])
    assert page.text("empty-text") == ""


def test_nothing_moves_on_the_page_while_records_come(page: Page, topic: str, write: Any) -> None:
    page.look(390, 844)
    page.tail(topic)
    place = "return document.getElementById('produce-title').getBoundingClientRect().top + scrollY"
    before = page.run(place)
    write(topic, *["x"] * 400)
    page.says("count", "400 read, 300 shown")
    assert page.run(place) == before


def test_large_records_are_not_read_by_the_hundred(page: Page, topic: str, write: Any) -> None:
    for _ in range(3):
        write(topic, *[{"value": "x" * 300_000, "partition": 0} for _ in range(10)])
    page.tail(topic)
    page.until(lambda: 10 <= len(page.rows()) < 20)


def test_a_partition_is_browsed_by_offset(page: Page, topic: str, write: Any) -> None:
    write(topic, *numbered(200, partitions=1))
    page.tail(topic)
    assert page.browse("offset", "120", "0") == texts(range(120, 170))
    assert page.text("range") == "50 records of partition 0, offsets 120 to 169"
    assert page.turn("newer") == texts(range(170, 200))
    assert not page.at("newer").is_enabled()
    assert page.turn("older") == texts(range(120, 170))
    assert page.turn("older") == texts(range(70, 120))
    assert page.turn("older") == texts(range(20, 70))
    assert page.turn("older") == texts(range(20))
    assert not page.at("older").is_enabled()
    assert page.browse("newest", partitions="0") == texts(range(150, 200))
    assert page.browse("offset", "100000", "0") == []
    page.says("empty-text", "Older shows those before")
    assert page.turn("older") == texts(range(150, 200))


def test_all_partitions_are_browsed_by_time(page: Page, topic: str, write: Any) -> None:
    write(topic, *numbered(120))
    page.tail(topic)
    moment = page.run(f"""
        const at = new Date({BEGIN_MS + 60_000});
        return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19)
    """)
    assert page.browse("time", moment) == texts(range(60, 110))
    assert page.turn("newer") == texts(range(110, 120))
    assert page.turn("older") == texts(range(60, 110))
    assert page.turn("older") == texts(range(10, 60))
    assert page.turn("older") == texts(range(10))


def test_pages_have_every_record_once_in_both_directions(
    page: Page, topic: str, write: Any, api: httpx.Client
) -> None:
    """Also over partitions of very different lengths, with offsets that are no records."""
    api.patch(f"/topics/{topic}", json={"partitions": 5}).raise_for_status()
    records = numbered(260, partitions=3)
    for n, record in enumerate(records):
        record["partition"] = 4 if n > 200 else record["partition"]
    write(topic, *records)
    gone = {"partitions": [{"partition": 0, "before_offset": 20}]}
    api.post(f"/topics/{topic}:truncate", json=gone).raise_for_status()
    wanted = [r["value"] for n, r in enumerate(records) if n > 200 or n % 3 or n >= 60]
    page.tail(topic)
    read = page.browse("earliest")
    while page.at("newer").is_enabled() and len(read) <= len(wanted):
        read += page.turn("newer")
    assert read == wanted
    read = page.browse("newest")
    while page.at("older").is_enabled() and len(read) <= len(wanted):
        read = page.turn("older") + read
    assert read == wanted


def test_filters_search_the_whole_topic_when_browsing(page: Page, topic: str, write: Any) -> None:
    write(topic, {"key": "rare", "value": "found", "partition": 0}, *numbered(1500))
    write(topic, {"key": "rare", "value": "again", "partition": 1})
    page.tail(topic)
    page.at("filter").click()
    page.choose("key_mode", "key")
    page.type("key_text", "rare")
    page.one("#records-filters .primary").click()
    page.until(lambda: page.values() == ["again"])
    assert sorted(page.browse("earliest")) == ["again", "found"]
    assert sorted(page.browse("newest")) == ["again", "found"]
    page.at("search").send_keys("FOU")
    page.says("count", "1 of 2 shown")
    assert [row[2] for row in page.rows()] == ["found"]


def test_a_row_of_the_partitions_browses_it_and_live_comes_back(page: Page, topic: str, write: Any) -> None:
    write(topic, *numbered(10))
    page.tail(topic)
    rows = page.until(lambda: page.all("[data-at=partition-rows] tr"))
    page.run("arguments[0].click()", rows[1].find_element(By.TAG_NAME, "button"))
    assert page.page_of_records() == ["1", "3", "5", "7", "9"]
    assert page.at("partitions").text == "2", "the figure of the topic, not the field"
    page.run("document.querySelector('[name=mode][value=live]').click()")
    page.says("state", "Live")
    page.until(lambda: page.values() == ["1", "3", "5", "7", "9"])


def test_a_refusal_is_told_as_the_api_tells_it(page: Page, topic: str, write: Any) -> None:
    write(topic, "one")
    page.tail(topic)
    page.run("document.querySelector('[name=mode][value=browse]').click()")
    page.fill("partitions", "7")
    page.at("show").click()
    page.says("notice", "no partition 7")
    assert page.one("[data-at=notice] strong").text
    advice = page.one("[data-at=notice] a")
    assert "/problems/" in advice.get_attribute("href")


PARSED = """
const done = arguments[arguments.length - 1];
import('/console/events.js').then(({EventParser}) => {
  const text = arguments[0];
  const all = [];
  for (let cut = 0; cut <= text.length; cut += 1) {
    const parser = new EventParser();
    all.push(JSON.stringify([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]));
  }
  done([...new Set(all)]);
}, (error) => done(String(error)));
"""


def test_events_are_read_wherever_the_network_cuts_them(page: Page) -> None:
    page.open("#/topics")
    text = "\n".join((
        "retry: 1000", "", "id: 7", "event: record", "data: {}", "", ": still here", "id: 9", "",
        ": still here", "", "data: a\r", "data:b\r", "\r", "event: unfinished", "",
    ))  # fmt: skip
    wanted = [
        {"event": "record", "data": "{}", "id": "7"},
        {"event": "", "data": "", "id": "9"},
        {"event": "message", "data": "a\nb", "id": "9"},
    ]
    found = page.driver.execute_async_script(PARSED, text)
    assert [json.loads(one) for one in found] == [wanted]


def test_of_very_many_partitions_those_written_last_are_shown(
    page: Page, api: httpx.Client, write: Any
) -> None:
    """One request cannot name them all."""
    api.put("/topics/wide", json={"partitions": 310}).raise_for_status()
    write("wide", *[{"value": f"{n}", "partition": n, "timestamp": BEGIN_MS - 1000 * n} for n in range(310)])
    page.tail("wide")
    page.says("count", "300 read, 300 shown")
    assert page.values() == texts(range(299, -1, -1))
    page.run("document.querySelector('[name=mode][value=browse]').click()")
    page.says("notice", "name at most 300 of them")
    assert page.browse("earliest", partitions="300-309") == texts(range(309, 299, -1))
