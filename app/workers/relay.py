"""A worker without a broker: it has the connections of clients and TLS, and forwards every request to worker 0."""

from __future__ import annotations

from collections.abc import Awaitable

from app.errors import Problem
from app.gateways.forwarding import Forwarding
from app.http.application import HttpApplication
from app.http.exchange import in_task
from app.http.metrics import LoopDelay, Traffic
from app.http.refusals import Refusals
from app.http.request import Answer, Request
from app.http.sender import Sender
from app.metrics import of_gateways, of_http, scraped
from app.metrics_families import timing
from app.rest_v2.surface import RENDERERS as V2_RENDERERS
from core.clock import Clock
from core.config import Config
from core.security.quotas import QuotaTable


class OwnPaths:
    """The few requests that a relay answers itself: whether it lives, and its metrics for another worker."""

    def __init__(self, traffic: Traffic, forwarding: Forwarding, delay: LoopDelay) -> None:
        self._traffic = traffic
        self._forwarding = forwarding
        self._delay = delay

    def answer(self, request: Request, sender: Sender) -> Awaitable[Answer]:
        """Return the awaitable that answers. Raises Problem for every other path."""
        path = request.scope["path"]
        if path == "/livez":
            request.route = path
            return _lives()
        if path == "/metrics":
            request.route = path
            return self._metrics(request.headers.get(b"accept", b"").decode("latin-1"))
        raise Problem("not-found", f"A worker that only forwards has nothing under {path[:100]!r}.")

    async def _metrics(self, accept: str) -> Answer:
        await in_task()
        late = timing(
            "sluice_event_loop_delay_seconds", "How late the event loop runs what is due.", self._delay.meter
        )
        families = [*of_http(self._traffic), *of_gateways(self._forwarding), late]
        text, media_type = await scraped(families, accept)
        return Answer(200, text, media_type.encode())


async def _lives() -> Answer:
    return Answer(200, b'{"status":"ok"}')


def relay_application(
    config: Config, clock: Clock, traffic: Traffic, forwarding: Forwarding, delay: LoopDelay
) -> HttpApplication:
    """Return the application of a relay."""
    refusals = Refusals(V2_RENDERERS, traffic.refusals)
    paths = OwnPaths(traffic, forwarding, delay)
    return HttpApplication(config, clock, paths, traffic, refusals, None, QuotaTable(), forwarding)
