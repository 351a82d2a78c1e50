"""`/metrics` of all workers in one answer: every sample gets the label `worker`.

Any worker answers for all. It asks each, itself included, over the UNIX sockets. The request has a hop header, so
each answers with its own numbers. A worker that fails, or does not answer in time, is left out: `sluice_worker_up`
is 0 for it. The credentials of the caller are passed on, and a refusal by one worker is the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from app.gateways.forwarding import ROUTE, Level
from app.gateways.hop import HEADER, Hop, hop_of, seal, target_of
from app.gateways.links import LinkLostError, Links
from app.http.exchange import in_task
from app.http.request import Answer, Request
from app.logs import REQUEST_ID

PATH = "/metrics"
_TIMEOUT_SECONDS = 5.0
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.*)")
_END = "# EOF"
# What the names of samples have after the name of their family.
_SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_created", "_info")
_PASSED = (b"accept", b"authorization", b"host", b"cookie")


class _Got(NamedTuple):
    status: int
    media_type: bytes
    body: bytes


class Merged:
    """Answers `/metrics` for all workers. `level` is that of the workers, `all_links` the way to each of them."""

    def __init__(self, level: Level, all_links: Mapping[str, Links]) -> None:
        self._level = level
        self._links = all_links

    def __call__(self, request: Request, hop: Hop | None) -> Awaitable[Answer] | None:
        """Return the awaitable of the answer; None for other requests, and for one of another worker."""
        asked_by_worker = hop is not None and hop.level == self._level.name
        if request.scope["path"] != PATH or request.scope["method"] != "GET" or asked_by_worker:
            return None
        request.route = ROUTE
        return self._answer(request)

    async def _answer(self, request: Request) -> Answer:
        await in_task()
        names = list(self._links)
        answers = await asyncio.gather(*(self._ask(name, request) for name in names))
        got = [(name, one) for name, one in zip(names, answers, strict=True) if one is not None]
        for _, one in got:
            if one.status != 200:
                return Answer(one.status, one.body, one.media_type)
        if not got:
            return Answer(503, b"No worker answers.\n", b"text/plain", ((b"retry-after", b"1"),))
        texts = {name: one.body.decode() for name, one in got}
        up = {name: int(name in texts) for name in names}
        return Answer(
            200, merge(texts, up).encode(), got[0][1].media_type, ((b"cache-control", b"no-store"),)
        )

    async def _ask(self, name: str, request: Request) -> _Got | None:
        links, scope, level = self._links[name], request.scope, self._level
        lines = [b"GET %b HTTP/1.1\r\n" % target_of(scope)]
        lines += [b"%b: %b\r\n" % line for line in scope["headers"] if line[0] in _PASSED]
        hop = seal(level.secret, hop_of(scope, level.name, level.own, name), scope)
        lines.append(b"x-request-id: %b\r\n%b: %b\r\n\r\n" % (REQUEST_ID.get(), HEADER, hop))
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                link = await links.take()
                try:
                    link.begin(b"".join(lines), without_body=False)
                    head = await link.head()
                    parts = []
                    while piece := await link.piece():
                        parts.append(piece)
                finally:
                    links.give_back(link)
        except (OSError, TimeoutError, LinkLostError):
            return None
        if head.status >= 500:
            return None
        return _Got(head.status, dict(head.headers).get(b"content-type", b""), b"".join(parts))


def merge(texts: Mapping[str, str], up: Mapping[str, int]) -> str:
    """Return one text of the texts by worker: each family once, each sample with the label `worker`.

    `up` are the values of `sluice_worker_up`.
    """
    comments: dict[str, list[str]] = {"sluice_worker_up": _UP}
    samples: dict[str, list[str]] = {
        "sluice_worker_up": [f'sluice_worker_up{{worker="{name}"}} {value}' for name, value in up.items()]
    }
    ended = False
    for name, text in texts.items():
        family, first = "", False
        for line in text.splitlines():
            if line == _END:
                ended = True
            elif line.startswith("#"):
                words = line.split(" ", 3)
                if words[2] != family:
                    family = words[2]
                    first = family not in comments
                    comments.setdefault(family, [])
                if first:
                    comments[family].append(line)
            elif found := _SAMPLE.fullmatch(line):
                sample, labels, rest = found.groups()
                label = f'worker="{name}"'
                labelled = f"{labels},{label}" if labels else label
                samples.setdefault(_family(sample, family), []).append(f"{sample}{{{labelled}}} {rest}")
    lines: list[str] = []
    for family, said in comments.items():
        lines += [*said, *samples.get(family, ())]
    return "\n".join([*lines, *([_END] if ended else [])]) + "\n"


_UP = ["# HELP sluice_worker_up 1 if the worker has answered.", "# TYPE sluice_worker_up gauge"]


def _family(sample: str, family: str) -> str:
    """Return the family of a sample: that of the comments before it, or else its own name."""
    if sample == family or any(sample == family + suffix for suffix in _SUFFIXES):
        return family
    return sample
