"""Refusals as answers: each in the shape of the surface that its path belongs to, and counted by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.errors import Problem, Renderer, from_broker, render_problem
from app.http.request import Answer
from core.errors import BrokerError


class Refusals:
    """Makes answers of errors.

    `renderers` are those of surfaces with a shape of their own, by the beginning of their paths; the first that fits
    is taken. All other paths get a problem document (RFC 9457). `counts` counts refusals by the type of problem.
    """

    def __init__(
        self, renderers: Sequence[tuple[str, Renderer]] = (), counts: Counter[str] | None = None
    ) -> None:
        self._renderers = renderers
        self.counts: Counter[str] = Counter() if counts is None else counts

    def answer(self, error: Problem | BrokerError, path: str) -> Answer:
        """Return the answer to a request for `path` that was refused with this error."""
        problem = error if isinstance(error, Problem) else from_broker(error)
        self.counts[problem.kind] += 1
        rendered = self._renderer(path)(problem, path)
        headers = tuple(
            (name.encode(), value.encode("latin-1", "replace")) for name, value in problem.headers.items()
        )
        return Answer(problem.status, rendered.body, rendered.media_type.encode(), headers)

    def _renderer(self, path: str) -> Renderer:
        for prefix, renderer in self._renderers:
            if path.startswith(prefix):
                return renderer
        return render_problem
