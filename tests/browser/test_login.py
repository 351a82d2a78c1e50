"""The login of the console, in a real browser at a listener that asks for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium import webdriver

from core.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from core.security.acl import Operation, PatternType, Permission, ResourceType
from tests.broker_process import BrokerProcess
from tests.browser.page import Page
from tests.browser.test_accessibility import LOOK
from tests.browser.test_foreign_origin import elsewhere
from tests.clients.wire import Wire
from tests.conftest import axe_path

pytestmark = pytest.mark.client("chromium")

LISTENER = "http?auth=basic,token,jwt"
# Not ASCII, and with a colon: Basic takes both (RFC 7617).
PASSWORD = "schlüssel: für alle"
__all__ = ["elsewhere"]
# A page of another site: a ticket, an EventSource with it, the first record, and what a second use of the URL does.
FOLLOW = """
const [base, path, token, done] = arguments;
const headers = {Authorization: `Bearer ${token}`, 'Content-Type': 'application/json'};
const body = JSON.stringify({path});
fetch(`${base}/api/v1/stream-tickets`, {method: 'POST', headers, body})
  .then(answer => answer.json())
  .then(({ticket}) => {
    const url = `${base}${path}?from=earliest&ticket=${ticket}`;
    const source = new EventSource(url);
    const got = [];
    source.addEventListener('record', ({data}) => {
      if (JSON.parse(data).value === 'by ticket') got.push('by ticket');
    });
    source.addEventListener('caught_up', () => {
      source.close();
      const again = new EventSource(url);
      again.onerror = () => done([got, again.readyState]);
    });
  }, error => done([error.name, 0]));
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """An OpenID provider: any user logs in there, without a password."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from oidc_provider_mock import run_server_in_thread
    with run_server_in_thread(require_nonce=True) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, elsewhere: str, provider: str
) -> Iterator[BrokerProcess]:
    """A broker with a listener that asks for a login. Its other listener is for the test, which may do everything."""
    data_dir = tmp_path_factory.mktemp("guarded") / "data"
    secret = data_dir.with_name("secret")
    secret.touch(0o600)
    secret.write_text("secret of a client: 100%\n")
    process = BrokerProcess(
        data_dir,
        environment={"SLUICE_OAUTH": f"issuer={provider}; audience=sluice; algorithms=RS256"},
        schemes=[LISTENER],
        options=[
            *("--super-user", "User:ANONYMOUS", "--super-user", "User:root"),
            *("--allowed-origin", elsewhere.rstrip("/")),
        ],
    )
    try:
        process.start()
        # The provider leads back to the port that the first start has chosen.
        process.stop()
        process.environment["SLUICE_CONSOLE_OIDC"] = (
            f"issuer={provider}; client_id=sluice; client_secret_file={secret}; "
            f"redirect_uri={address(process)}/console/session/callback"
        )
        process.start()
        with httpx.Client(base_url=f"{process.http}/api/v1", timeout=20) as admin:
            for name in ("root", "reader"):
                admin.post("/users", json={"name": name, "password": PASSWORD}).raise_for_status()
            for name in ("open", "closed"):
                admin.put(f"/topics/{name}", json={"partitions": 2}).raise_for_status()
        wire = Wire(process.kafka_address)
        rule = (ResourceType.TOPIC, "open", PatternType.LITERAL, "User:reader", "*")
        request = CreateAclsRequest([AclCreation(*rule, Operation.READ, Permission.ALLOW)])
        assert not wire.call(30, request, 3).results[0].error_code
        wire.close()
        yield process
    finally:
        process.kill()
    assert "Traceback" not in process.read_log()


@pytest.fixture
def admin(guarded: BrokerProcess) -> Iterator[httpx.Client]:
    """The HTTP API for what happens beside the browser."""
    with httpx.Client(base_url=f"{guarded.http}/api/v1", timeout=20) as client:
        yield client


@pytest.fixture
def page(browser: webdriver.Chrome, guarded: BrokerProcess) -> Iterator[Page]:
    """A window at the listener that asks, without a session."""
    page = Page(browser, address(guarded))
    page.look(1280, 900)
    page.open("")
    page.run("document.cookie")
    browser.execute_cdp_cmd("Network.clearBrowserCookies", {})
    page.complaints()
    yield page
    browser.get("about:blank")
    assert page.complaints() == []


def address(guarded: BrokerProcess) -> str:
    return f"http://127.0.0.1:{guarded.ports[LISTENER]}"


def log_in(page: Page, user: str = "root", password: str = PASSWORD) -> None:
    """Fill in the form and press its button."""
    page.retype("[name=user]", user)
    page.retype("[name=password]", password)
    page.at("enter").click()


def in_as(page: Page, user: str) -> None:
    page.until(lambda: page.all("#user")[0].text == user and not page.all("[data-at=login]"), "no login")


def test_a_wrong_password_is_refused_and_the_right_one_opens_the_view_that_was_asked_for(page: Page) -> None:
    page.open("#/topics/open")
    log_in(page, password="wrong wrong")
    page.says("trouble", "The credentials are not valid")
    log_in(page)
    in_as(page, "root")
    page.says("state", "Live")
    assert page.at("name").text == "open"
    # The session is known to the browser, not to scripts; a second load needs no password.
    assert page.run("return document.cookie") == ""
    page.open("#/topics")
    in_as(page, "root")
    stored = page.run("return JSON.stringify([localStorage, sessionStorage])")
    assert "slc_" not in stored and PASSWORD not in stored


def test_a_logout_ends_the_session(page: Page) -> None:
    page.open("")
    log_in(page)
    in_as(page, "root")
    page.one("#log-out").click()
    page.says("reason", "You are logged out")
    page.open("")
    page.one("[data-at=login]")
    assert not page.one("#connection").text.startswith("Not reachable")


def test_a_stream_continues_over_a_restart_after_another_login(
    page: Page, guarded: BrokerProcess, admin: httpx.Client
) -> None:
    page.open("#/topics/open")
    log_in(page)
    page.says("state", "Live")
    admin.post("/topics/open/records", json={"value": "first"}).raise_for_status()
    page.until(lambda: "first" in page.values())
    guarded.stop()
    guarded.start()
    page.says("reason", "the gateway was restarted")
    log_in(page)
    page.until(lambda: "first" in page.values())
    page.says("state", "Live")


def test_a_user_that_may_read_one_topic_sees_that_and_is_told_of_the_rest(
    page: Page, admin: httpx.Client
) -> None:
    admin.post("/topics/open/records", json={"value": "seen"}).raise_for_status()
    page.open("#/topics")
    log_in(page, "reader")
    in_as(page, "reader")
    page.until(lambda: [one.text for one in page.all("[data-at=rows] a")] == ["open"])
    page.open("#/topics/open")
    page.says("state", "Live")
    page.until(lambda: "seen" in page.values())
    page.one("[name=value]").send_keys("not allowed")
    page.one("[data-at=produce] .primary").click()
    page.says("outcome", "Topic authorization failed. The access rules do not allow this to user reader.")
    page.open("#/topics/closed")
    page.says("trouble", "do not allow this to user reader")
    page.open("#/groups")
    in_as(page, "reader")


def test_the_deletion_of_a_user_ends_its_session(page: Page, admin: httpx.Client) -> None:
    admin.post("/users", json={"name": "leaver", "password": PASSWORD}).raise_for_status()
    page.open("#/groups")
    log_in(page, "leaver")
    in_as(page, "leaver")
    admin.delete("/users/leaver").raise_for_status()
    page.hurry()
    page.says("reason", "the session has ended")
    log_in(page, "leaver")
    page.says("trouble", "The credentials are not valid")


def test_a_page_of_an_allowed_origin_opens_a_stream_with_a_ticket(
    page: Page, guarded: BrokerProcess, admin: httpx.Client, elsewhere: str
) -> None:
    admin.post("/topics/open/records", json={"value": "by ticket"}).raise_for_status()
    token = admin.post("/tokens", json={"owner": "reader"}).json()["token"]
    page.driver.get(elsewhere)
    seen = page.driver.execute_async_script(FOLLOW, address(guarded), "/api/v1/topics/open/records", token)
    assert seen[0] == ["by ticket"]
    assert seen[1] == 2, "the reconnect with a ticket that was used is refused for good"
    assert "slc_" not in guarded.read_log()


def test_a_page_of_another_origin_cannot_use_the_session(
    page: Page, guarded: BrokerProcess, elsewhere: str
) -> None:
    page.open("")
    log_in(page)
    in_as(page, "root")
    page.driver.get(elsewhere)
    script = """
        const done = arguments[1];
        const options = {method: 'POST', credentials: 'include'};
        fetch(arguments[0], options).then(r => r.text()).then(done, e => done(e.name));
    """
    for path in ("/console/session/token", "/api/v1/stream-tickets"):
        # Of an allowed origin the browser shows no answer to a request with cookies: none allows credentials.
        assert page.driver.execute_async_script(script, address(guarded) + path) == "TypeError"
    page.complaints()


@pytest.mark.client("axe-core")
def test_axe_core_objects_to_nothing_in_the_form(page: Page) -> None:
    script = Path(axe_path() or "").read_text()
    for width, scheme in ((1280, "light"), (360, "dark")):
        page.look(width, 844, scheme)
        page.open("")
        log_in(page, password="wrong wrong")
        page.says("trouble", "not valid")
        page.run(f"if (!window.axe) {{ {script} }}")
        assert page.driver.execute_async_script(LOOK) == []
        log_in(page)
        in_as(page, "root")
        assert page.run("return document.documentElement.scrollWidth") <= width
        page.one("#log-out").click()
        page.says("reason", "You are logged out")


@pytest.mark.filterwarnings("ignore")
def test_a_user_of_an_openid_provider_logs_in_there(page: Page, guarded: BrokerProcess) -> None:
    page.open("#/topics")
    page.at("provider").click()
    page.one("input[name=sub]").send_keys("reader\n")
    in_as(page, "reader")
    # The provider's page is not ours.
    page.complaints()
    # The rights are those of the name: what the rule of the fixture allows.
    page.until(lambda: [one.text for one in page.all("[data-at=rows] a")] == ["open"])
    page.one("#log-out").click()
    page.says("reason", "You are logged out")
    page.at("provider").click()
    page.one("button[value=deny]").click()
    page.says("reason", "login was refused")
    page.complaints()
    assert page.driver.current_url.startswith(page.base_url + "/console")
