"""The HTTP side of the commands: one gateway, its answers as Python values, its refusals as errors to show.

httpx is imported with the first request: `sluice topics --help` has no need of it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

import click
import msgspec

from app.commands.errors import RefusedError, UnreachableError
from app.commands.login import Login
from app.version import VERSION

if TYPE_CHECKING:
    import ssl

    import httpx

DEFAULT_URL = "http://127.0.0.1:8082"
API = "/api/v1"
# A gateway that does not accept within this time is not there; an answer may take longer, as a fsync may.
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
# A gateway that says "not now" (429, 503) is asked again for this long.
PATIENCE_SECONDS = 5.0
# Items of a list in one answer.
PAGE_SIZE = 1000
_IS_IT_HTTP = "Is that its HTTP port, and not the one for Kafka clients? By default it is 8082."
NO_CONTENT = 204
_PROBLEM = "application/problem+json"

Params = Mapping[str, str | int | bool | None]


class Answer(NamedTuple):
    """A successful answer: its status, its body, its headers by lower-case name."""

    status: int
    content: bytes
    headers: Mapping[str, str]
    url: str

    @property
    def data(self) -> Any:
        """The body's JSON as Python values; None where there is no body."""
        if self.status == NO_CONTENT:
            return None
        try:
            return msgspec.json.decode(self.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _stranger(self.url, self.status, self.headers) from None


class Client:
    """Calls one gateway. Every method raises RefusedError and UnreachableError.

    `ca` is a PEM file of the authorities that an https gateway is checked by, in place of the system's. `login` says
    how to log in.
    """

    def __init__(self, url: str, ca: str | None = None, login: Login | None = None) -> None:
        self.url = base_url(url)
        self._ca = ca
        self._login = login or Login()
        # As it is shown to people: without the password that it may hold.
        self.shown = _without_user(self.url)
        self._http: httpx.Client | None = None

    def close(self) -> None:
        """Close its connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def get(self, path: str, params: Params | None = None) -> Any:
        """The body of a GET below `/api/v1`."""
        return self.send("GET", path, params=params).data

    def pages(self, path: str, params: Params | None = None) -> Iterator[Any]:
        """The items of a paged list, page after page."""
        token: str | None = None
        while True:
            page = self.get(path, {**(params or {}), "page_size": PAGE_SIZE, "page_token": token})
            yield from page["items"]
            token = page.get("next_page_token")
            if not token:
                return

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_ms: int = 0,
        patient: bool = True,
    ) -> Answer:
        """One request below `/api/v1`: `body` is sent as JSON, `content` as it is.

        `wait_ms` is how long the gateway was asked to wait before it answers. Where it says that it cannot
        now, and has done nothing, it is asked again for a while, unless `patient` is false.
        """
        sent = dict(headers or {})
        if body is not None:
            content = msgspec.json.encode(body)
            sent["content-type"] = "application/json"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self._errors():
                response = self._client().request(
                    method,
                    self.url + API + path,
                    params=_parameters(params),
                    content=content,
                    headers=sent,
                    timeout=_timeout(ANSWER_SECONDS + wait_ms / 1000),
                )
            if response.is_success:
                return Answer(response.status_code, response.content, response.headers, self.shown)
            pause = _pause(response)
            if not patient or pause is None or time.monotonic() + pause > deadline:
                raise self._refusal(response, response.content)
            time.sleep(pause)

    @contextlib.contextmanager
    def stream(
        self,
        path: str,
        params: Params,
        *,
        accept: str,
        silence_seconds: float,
    ) -> Iterator[Iterator[list[bytes]]]:
        """The lines of an endless answer, without their ends, as many at a time as have come.

        Silence for `silence_seconds` counts as a lost connection.
        """
        with self._errors(streaming=True):
            request = self._client().build_request(
                "GET",
                self.url + API + path,
                params=_parameters(params),
                headers={"accept": accept},
                timeout=_timeout(silence_seconds),
            )
            response = self._client().send(request, stream=True)
            try:
                if not response.is_success:
                    raise self._refusal(response, response.read())
                yield _lines(response.iter_bytes())
            finally:
                response.close()

    def _client(self) -> httpx.Client:
        if self._http is None:
            import httpx

            # A proxy of the environment is not meant for this machine. Reading the system's certificates
            # takes 40 ms, which plain HTTP can spare.
            headers = {"user-agent": f"sluice/{VERSION}", "accept": "application/json"}
            if authorization := self._login.header(self.url):
                headers["authorization"] = authorization
            self._http = httpx.Client(
                headers=headers,
                trust_env=not is_local(self.url),
                verify=self._trust(),
            )
        return self._http

    def _trust(self) -> ssl.SSLContext | bool:
        """Return what the gateway's certificate is checked by."""
        secure = self.url.startswith("https:")
        certificate, key = self._login.certificate, self._login.key
        if not secure or not (self._ca or certificate):
            return secure
        import ssl

        import httpx

        try:
            context = ssl.create_default_context(cafile=self._ca) if self._ca else httpx.create_ssl_context()
        except OSError as error:
            reason = "it is not PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise click.BadParameter(f"Cannot read {self._ca!r}: {reason}.", param_hint="--ca") from None
        if certificate:
            try:
                context.load_cert_chain(certificate, key)
            except OSError as error:
                files = f"{certificate!r} and {key!r}" if key else repr(certificate)
                reason = (
                    "no certificate with its key, in PEM"
                    if isinstance(error, ssl.SSLError)
                    else error.strerror
                )
                raise click.BadParameter(
                    f"Cannot use {files}: {reason}.", param_hint="--cert, --cert-key"
                ) from None
        return context

    @contextlib.contextmanager
    def _errors(self, *, streaming: bool = False) -> Iterator[None]:
        import httpx

        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self.unreachable(error, sent=False) from None
        except httpx.TimeoutException:
            what = "sends nothing any more" if streaming else f"did not answer within {ANSWER_SECONDS:.0f} s"
            raise UnreachableError(f"The gateway at {self.shown} {what}.", sent=True) from None
        except httpx.RemoteProtocolError as error:
            if "disconnected" in str(error).lower() or "incomplete" in str(error).lower():
                message = f"The gateway at {self.shown} closed the connection before its answer was whole."
                raise UnreachableError(message, _IS_IT_HTTP, sent=True) from None
            message = f"What listens at {self.shown} does not speak HTTP ({error})."
            raise UnreachableError(message, _IS_IT_HTTP, sent=True) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self.unreachable(error, sent=True) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UnreachableError(f"{self.shown!r} cannot be called: {error}", sent=False) from None

    def unreachable(self, error: Exception, *, sent: bool) -> UnreachableError:
        """The error for a gateway that cannot be reached, with what to do about it."""
        reason = _reason(error)
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return UnreachableError(
                f"The certificate of {self.shown} is not trusted: {reason}.",
                "--ca or SLUICE_CA names the file of its authority; of a self-signed one, the certificate itself.",
                sent=sent,
            )
        return UnreachableError(
            f"No gateway can be reached at {self.shown}: {reason}.",
            "Is it running? `sluice serve` starts one; --url or SLUICE_URL names another.",
            sent=sent,
        )

    def _refusal(self, response: httpx.Response, content: bytes) -> RefusedError | UnreachableError:
        if response.headers.get("content-type", "").startswith(_PROBLEM):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                problem = msgspec.json.decode(content)
                if isinstance(problem, dict):
                    return RefusedError(problem, response.status_code)
        return _stranger(self.shown, response.status_code, response.headers)


def base_url(url: str) -> str:
    """The address of a gateway without a path of the API; `localhost:8082` is taken for http. Raises BadParameter."""
    text = url.strip()
    text = (text if "://" in text else f"http://{text}").rstrip("/")
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or any(c.isspace() for c in text):
        shown = re.sub(r"//[^/]*@", "//", url)
        raise click.BadParameter(f"{shown!r} is not like {DEFAULT_URL}.", param_hint="--url or SLUICE_URL")
    return text.removesuffix(API)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def is_local(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def segment(name: str) -> str:
    """A name as one segment of a path, whatever bytes the shell gave. `..` must not become a way up."""
    quoted = quote(name.encode("utf-8", "surrogateescape"), safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def topic_path(topic: str) -> str:
    """The path of a topic below `/api/v1`."""
    return f"/topics/{segment(topic)}"


def group_path(group: str) -> str:
    """The path of a group below `/api/v1`."""
    return f"/groups/{segment(group)}"


def transaction_path(transactional_id: str) -> str:
    """The path of a transactional id below `/api/v1`."""
    return f"/transactions/{segment(transactional_id)}"


def _parameters(params: Params | None) -> dict[str, str]:
    texts = {}
    for name, value in (params or {}).items():
        if value is not None:
            texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _timeout(seconds: float) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(seconds, connect=CONNECT_SECONDS)


def _pause(response: httpx.Response) -> float | None:
    """Seconds to wait before asking again; None where asking again would not help or not be safe.

    503 is also the answer to a write whose outcome is not known (NOT_ENOUGH_REPLICAS_AFTER_APPEND), and that
    is Kafka's: it is left to the caller. What the gateway itself says comes before it has done anything.
    """
    if response.status_code not in (429, 503) or b'"kafka_error"' in response.content:
        return None
    try:
        return max(0.1, min(float(response.headers.get("retry-after", "1")), PATIENCE_SECONDS))
    except ValueError:
        return 1.0


def _reason(error: Exception) -> str:
    text = str(error)
    text = text.partition("] ")[2] or text if text.startswith("[Errno") else text
    text = text.rstrip(".") or type(error).__name__
    return text[0].lower() + text[1:]


def _lines(chunks: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Whole lines out of chunks, cut at line feeds alone: JSON may hold all other line ends."""
    rest: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            yield [b"".join(rest), *others[:-1]]
            rest = [others[-1]]


def _stranger(url: str, status: int, headers: Mapping[str, str]) -> UnreachableError:
    kind = headers.get("content-type", "no media type")
    return UnreachableError(
        f"What answers at {url} is no Sluice gateway (HTTP {status}, {kind}).",
        "Is the URL right? --url or SLUICE_URL names another.",
        sent=True,
    )


def queue_path(queue: str) -> str:
    """The path of a queue below `/api/v1`."""
    return f"/queues/{segment(queue)}"
