"""A page for each type of problem: `type` in a problem document is the address of its page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Annotated

from fastapi import Path
from fastapi.responses import HTMLResponse

from app.errors import KINDS, STATUS_OF, Problem, slug_of, title_of
from app.http.parameters import PATH_NAME
from core.errors import ErrorCode

Slug = Annotated[
    str, Path(description="The type's name.", examples=["not-found"], json_schema_extra=PATH_NAME)
]
_CODES = {slug_of(code): code for code in ErrorCode}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>body{{font:1rem/1.5 system-ui,sans-serif;
max-width:44rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}}code{{font-size:.95em}}</style>
<h1>{title}</h1>{body}</html>
"""


async def list_problems() -> HTMLResponse:
    """All types of problems."""
    slugs = sorted({*KINDS, *_CODES})
    items = "".join(f'<li><a href="/problems/{slug}">{slug}</a></li>' for slug in slugs)
    return _page("Problems", [f"<ul>{items}</ul>"])


async def get_problem(slug: Slug) -> HTMLResponse:
    """What a type of problem means, and what to do about it."""
    if (kind := KINDS.get(slug)) is not None:
        return _page(
            kind.title, [f"<p>HTTP status <b>{kind.status}</b>.</p>", f"<p>{escape(kind.advice)}</p>"]
        )
    if (code := _CODES.get(slug)) is not None:
        again = (
            "The same request may succeed later." if code.retriable else "The same request will fail again."
        )
        return _page(
            title_of(code),
            [
                f"<p>HTTP status <b>{STATUS_OF[code]}</b>. Kafka's error <code>{code.name}</code>, "
                f"number {int(code)}.</p>",
                f"<p>{again} <code>detail</code> says what was wrong and what would be right.</p>",
            ],
        )
    raise Problem("not-found", f"There is no problem type {slug[:80]!r}.")


def _page(title: str, parts: Iterable[str]) -> HTMLResponse:
    html = _PAGE.format(title=escape(title), body="".join(parts))
    return HTMLResponse(html, headers={"content-security-policy": _POLICY})
