"""Changes in a real browser: settings, partitions, deletion of a topic; the reset of a group's offsets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")

RETENTION = "[id='setting-retention.ms']"


def test_settings_are_found_changed_and_set_back(page: Page, topic: str, api: httpx.Client) -> None:
    page.tail(topic)
    page.at("edit").click()
    page.until(lambda: len(page.all(".setting")) > 20)
    page.press("retention.ms")
    visible = page.until(lambda: [one for one in page.all(".setting") if one.is_displayed()])
    assert "retention.ms" in [one.text.split()[0] for one in visible]
    page.retype(RETENTION, "7200000")
    page.says("outcome", "retention.ms: 7200000")
    assert "2 h" in page.one(".setting.changed").text
    page.at("save").click()
    page.says("outcome", "Saved")
    assert api.get(f"/topics/{topic}").json()["configs"] == {"retention.ms": "7200000"}
    page.until(lambda: "this topic" in page.one(RETENTION).find_element("xpath", "../..").text)
    page.one(".setting button").click()
    page.says("outcome", "retention.ms: the default")
    page.at("save").click()
    page.until(lambda: api.get(f"/topics/{topic}").json()["configs"] == {})
    # The first one clears the search.
    page.press(Keys.ESCAPE, Keys.ESCAPE)
    page.until(lambda: not page.all("dialog.sheet"))
    assert page.driver.switch_to.active_element.text == "Edit settings", "the focus comes back"


def test_a_setting_that_is_refused_says_why_and_where(page: Page, topic: str, api: httpx.Client) -> None:
    page.tail(topic)
    page.at("edit").click()
    page.retype(RETENTION, "soon" + Keys.ENTER)
    page.until(lambda: "retention.ms" in page.one("dialog [data-at=trouble]").text)
    assert page.one("dialog [data-at=trouble] a").get_attribute("href").split("/")[-2] == "problems"
    assert page.one(RETENTION).get_attribute("aria-invalid") == "true"
    assert api.get(f"/topics/{topic}").json()["configs"] == {}


def test_a_change_of_a_topic_that_has_changed_meanwhile_is_refused(
    page: Page, topic: str, api: httpx.Client
) -> None:
    page.tail(topic)
    page.at("edit").click()
    page.retype(RETENTION, "7200000")
    page.says("outcome", "retention.ms: 7200000")
    api.patch(f"/topics/{topic}", json={"configs": {"retention.ms": 1000}}).raise_for_status()
    page.at("save").click()
    page.until(lambda: "version" in page.one("dialog [data-at=trouble]").text)
    assert api.get(f"/topics/{topic}").json()["configs"] == {"retention.ms": "1000"}


def test_partitions_are_added(page: Page, topic: str) -> None:
    page.tail(topic)
    page.at("grow").click()
    page.until(lambda: page.one("dialog [name=partitions]").get_attribute("value") == "3")
    page.retype("dialog [name=partitions]", "5" + Keys.ENTER)
    page.until(lambda: page.at("partitions").text == "5")
    page.until(lambda: len(page.all("[data-at=partition-rows] tr")) == 5)


def test_a_topic_is_deleted_when_its_name_was_typed(
    page: Page, topic: str, api: httpx.Client, write: Any
) -> None:
    write(topic, *range(7))
    page.tail(topic)
    page.at("remove").click()
    page.until(lambda: "7 records" in page.text("held"))
    page.press(topic[:-1], Keys.ENTER)
    assert not page.at("delete").is_enabled()
    assert api.get(f"/topics/{topic}").status_code == 200
    page.press(topic[-1], Keys.ENTER)
    page.until(lambda: page.one("h1").text == "Topics")
    assert api.get(f"/topics/{topic}").status_code == 404


@pytest.fixture
def group(topic: str, write: Any, api: httpx.Client) -> str:
    """A group that has committed offset 5 in partition 0, and 2 in partition 1, of ten records each."""
    write(topic, *[{"value": n, "partition": n % 2} for n in range(20)])
    name = f"{topic}-group"
    offsets = [{"topic": topic, "partition": p, "next_offset": o} for p, o in ((0, 5), (1, 2))]
    api.patch(f"/groups/{name}/offsets", json={"offsets": offsets}).raise_for_status()
    return name


def committed(api: httpx.Client, group: str) -> list[int]:
    """Return the committed offsets of a group, by partition."""
    offsets = api.get(f"/groups/{group}/offsets").json()["offsets"]
    return [one["next_offset"] for one in sorted(offsets, key=lambda one: one["partition"])]


@pytest.mark.parametrize(
    ("to", "value", "after"),
    [("earliest", "", [0, 0]), ("latest", "", [10, 10]), ("offset", "7", [7, 7]), ("shift", "-3", [2, 0]),
     ("time", "2020-01-01T00:00:00", [0, 0])],
    ids=["earliest", "latest", "offset", "shift", "time"],
)  # fmt: skip
def test_offsets_are_reset_as_the_dry_run_shows(
    page: Page, group: str, topic: str, api: httpx.Client, to: str, value: str, after: list[int]
) -> None:
    page.open(f"#/groups/{group}")
    page.says("positions", topic)
    page.at("reset").click()
    page.choose("to", to)
    if value:
        page.fill(to, value)
    assert not page.at("apply").is_enabled()
    page.one("dialog .primary").click()
    page.says("outcome", "Nothing is changed yet")
    cells = [
        [cell.text for cell in row.find_elements("css selector", "th, td")]
        for row in page.all("[data-at=rows] tr")
    ]
    assert cells == [
        [topic, str(p), str(before), str(new), f"+{new - before}" if new > before else str(new - before)]
        for p, (before, new) in enumerate(zip([5, 2], after, strict=True))
    ]
    assert committed(api, group) == [5, 2]
    page.at("apply").click()
    page.says("outcome", "2 offsets were committed")
    assert committed(api, group) == after


def test_another_target_needs_another_dry_run(page: Page, group: str, topic: str) -> None:
    page.open(f"#/groups/{group}")
    page.says("positions", topic)
    page.at("reset").click()
    page.one("dialog .primary").click()
    page.until(lambda: page.at("apply").is_enabled())
    page.choose("to", "latest")
    page.until(lambda: not page.at("apply").is_enabled() and not page.all("[data-at=preview]:not([hidden])"))


def test_a_group_with_members_is_not_reset(page: Page, topic: str, api: httpx.Client) -> None:
    api.post("/groups/busy/consumers", json={"name": "w", "topics": [topic]}).raise_for_status()
    page.open("#/groups/busy")
    page.says("member-count", "1")
    page.at("reset").click()
    page.fill("topic", topic)
    page.one("dialog .primary").click()
    page.until(lambda: "members" in page.one("dialog [data-at=trouble]").text)
    assert not page.at("apply").is_enabled()
