"""The console as a person has it: a real browser, and words for what one does in it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

T = TypeVar("T")
WAIT_SECONDS = 20.0
# Without a network, Chromium's own errands would be refused by the hundred. A page from elsewhere (a login)
# may name a style sheet on the internet: that is refused at once, so that its load waits for no name server.
FLAGS = (
    "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "disable-dev-shm-usage", "window-size=1280,900",
    "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip


@contextmanager
def chromium(binary: str, driver: str, profile: Path) -> Iterator[webdriver.Chrome]:
    """A headless Chromium with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield found
    finally:
        found.quit()


class Page:
    """One browser window at one gateway."""

    def __init__(self, driver: webdriver.Chrome, base_url: str) -> None:
        self.driver = driver
        self.base_url = base_url

    # --- looking -------------------------------------------------------------------------------------------

    def until(self, what: Callable[[], T], why: str = "") -> T:
        """Ask again until the answer is true, and give it."""
        deadline = time.monotonic() + WAIT_SECONDS
        found: T | None = None
        while time.monotonic() < deadline:
            try:
                if found := what():
                    return found
            except (StaleElementReferenceException, IndexError):
                # The page is being drawn, or another one is being loaded.
                pass
            time.sleep(0.03)
        body = self.driver.find_element(By.TAG_NAME, "body").text
        raise AssertionError(
            f"{why or 'it did not happen'}; last answer {found!r}; the page says:\n{body[:3000]}"
        )

    def all(self, selector: str) -> list[WebElement]:
        """All elements of a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The one element that is in sight; waits for it."""
        return self.until(
            lambda: next((e for e in self.all(selector) if e.is_displayed()), None), f"no {selector}"
        )

    def at(self, name: str) -> WebElement:
        """A part of the page by the name that its script knows it by."""
        return self.one(f'[data-at="{name}"]')

    def text(self, name: str) -> str:
        """What such a part says."""
        return " ".join(e.text for e in self.all(f'[data-at="{name}"]') if e.is_displayed())

    def says(self, name: str, text: str) -> None:
        """Wait until such a part says something."""
        self.until(lambda: text in self.text(name), f"{name} does not say {text!r} but {self.text(name)!r}")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and give what it returns."""
        return self.driver.execute_script(script, *arguments)

    def rows(self) -> list[list[str]]:
        """The records in the list from top to bottom: place, key, value, notes."""
        return self.run(
            "return [...document.querySelectorAll('ol.records button')].map(row =>"
            " ['place', 'key', 'text', 'notes'].map(name => row.querySelector('.' + name).textContent))"
        )

    def values(self) -> list[str]:
        """The values in the tail, oldest first."""
        return [row[2] for row in reversed(self.rows())]

    # --- doing ---------------------------------------------------------------------------------------------

    def open(self, address: str) -> None:
        """Load the console again at one of its addresses: `#/topics/orders`."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.base_url}/console{address}")

    def tail(self, topic: str) -> None:
        """Open a topic: its newest records, then the live tail."""
        self.open(f"#/topics/{topic}")
        self.says("state", "Live")

    def browse(self, start: str, value: str = "", partitions: str = "") -> list[str]:
        """Browse the records of the topic that is open, from a place on, and return the values of the first page."""
        self.until(lambda: self.all("[name=mode][value=browse]"))
        self.run("document.querySelector('[name=mode][value=browse]').click()")
        self.choose("start", start)
        if value:
            self.fill(start, value)
        self.fill("partitions", partitions)
        return self.turn("show")

    def page_of_records(self) -> list[str]:
        """Wait for a page of the browser and return its values, oldest first."""
        self.until(lambda: self.text("range") not in ("", "Reading"))
        assert self.text("notice") == ""
        return [row[2] for row in self.rows()]

    def turn(self, button: str) -> list[str]:
        """Press a button of the browser, wait for its page, and return the values, oldest first."""
        # By script: a click of the driver may return before the page has noticed it.
        self.run("arguments[0].click()", self.at(button))
        return self.page_of_records()

    def retype(self, selector: str, text: str) -> None:
        """Replace the text of a field, with the keyboard."""
        field = self.one(selector)
        # One call each: a key that is held is released at the end of a call.
        field.send_keys(Keys.CONTROL + "a")
        field.send_keys(text)

    def fill(self, field: str, value: str) -> None:
        """Set a field of a form to a value."""
        self.run(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            self.one(f"[name={field}]"),
            value,
        )

    def close_dialog(self) -> None:
        """Close the dialog that is open."""
        self.one("dialog[open] [data-at=close]").click()
        self.until(lambda: not self.all("dialog[open]"))

    def choose(self, field: str, value: str) -> None:
        """Choose in a drop-down list."""
        Select(self.one(f"select[name={field}]")).select_by_value(value)

    def type(self, field: str, text: str) -> None:
        """Type into a field of a form."""
        self.one(f"[name={field}]").send_keys(text)

    def press(self, *keys: str) -> WebElement:
        """Press keys where the focus is; gives where it is then."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)
        return self.driver.switch_to.active_element

    def hurry(self) -> None:
        """Let the console ask for its figures now, as it does when a user returns to it."""
        self.run("document.dispatchEvent(new Event('visibilitychange'))")

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the screen, and whether the system is light or dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def complaints(self) -> list[str]:
        """What the browser has complained of since it was last asked; not that a server refused, or was away."""
        expected = re.compile(
            r"the server responded with a status of 4|net::ERR_(CONNECTION|EMPTY|INCOMPLETE)"
        )
        entries = self.driver.get_log("browser")
        return [e["message"] for e in entries if not expected.search(e["message"])]
