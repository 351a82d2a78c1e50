"""A page of another origin, in a real browser: it may neither write nor read, whatever it tries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.browser.page import Page

pytestmark = pytest.mark.client("chromium")


class Elsewhere(BaseHTTPRequestHandler):
    """A site with one empty page."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>Elsewhere</title><body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of another site on this machine: another port is another origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def stranger(page: Page, elsewhere: str) -> Iterator[Page]:
    """The browser at the other site. That it complains about what is refused is as it should be."""
    page.driver.get(elsewhere)
    yield page
    page.complaints()


def written(api: httpx.Client, topic: str) -> int:
    """How many records a topic holds."""
    return sum(one["latest"] for one in api.get(f"/topics/{topic}").json()["partition_details"])


@pytest.mark.parametrize(
    "options",
    [
        "{method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}, body: 'taken'}",
        "{method: 'POST', headers: {'Content-Type': 'text/plain'}, body: 'taken'}",
        "{method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{\"value\": 1}'}",
        "{method: 'POST', mode: 'no-cors', body: new URLSearchParams({value: 'taken'})}",
    ],
    ids=["text, unseen", "text", "json", "form"],
)
def test_a_script_of_another_site_writes_nothing(
    stranger: Page, broker: BrokerProcess, api: httpx.Client, options: str
) -> None:
    api.put("/topics/safe", json={"partitions": 1})
    url = f"{broker.http}/api/v1/topics/safe/records"
    outcome = stranger.driver.execute_async_script(
        f"const done = arguments[1]; fetch(arguments[0], {options})"
        ".then(r => done(r.type + ' ' + r.status), e => done(e.name))",
        url,
    )
    # Unseen answers are opaque; others are withheld from the page.
    assert outcome in ("opaque 0", "TypeError")
    assert written(api, "safe") == 0


def test_a_form_of_another_site_is_refused(stranger: Page, broker: BrokerProcess, api: httpx.Client) -> None:
    api.put("/topics/safe", json={"partitions": 1})
    stranger.run(
        """
        const form = document.createElement('form');
        Object.assign(form, {method: 'POST', enctype: 'text/plain', action: arguments[0]});
        const field = document.createElement('input');
        Object.assign(field, {name: 'taken', value: 'yes'});
        form.append(field);
        document.body.append(form);
        form.submit();
        """,
        f"{broker.http}/api/v1/topics/safe/records",
    )
    stranger.until(lambda: "foreign-origin" in stranger.one("body").text)
    assert written(api, "safe") == 0


def test_another_site_reads_nothing_either(stranger: Page, broker: BrokerProcess, api: httpx.Client) -> None:
    api.put("/topics/secret", json={"partitions": 1})
    api.post("/topics/secret/records", json={"value": "secret"}).raise_for_status()
    records = f"{broker.http}/api/v1/topics/secret/records"
    read = "const done = arguments[1]; fetch(arguments[0]).then(r => r.text()).then(done, e => done(e.name))"
    assert stranger.driver.execute_async_script(read, records) == "TypeError"
    heard = stranger.driver.execute_async_script(
        """
        const done = arguments[1];
        const source = new EventSource(arguments[0]);
        source.addEventListener('record', e => done(e.data));
        source.onerror = () => done(source.readyState);
        """,
        records,
    )
    assert heard == 2, "closed for good"


def test_another_site_cannot_put_the_console_into_a_frame(stranger: Page, broker: BrokerProcess) -> None:
    stranger.run(
        "const f = document.createElement('iframe'); f.src = arguments[0]; document.body.append(f);",
        f"{broker.http}/console",
    )
    stranger.until(lambda: any("frame-ancestors" in one for one in stranger.complaints()))
