"""Files of a page: read once, sent with an ETag, under a policy that lets a browser run nothing else.

The policy is the second protection against scripts in keys, values and names. The first: pages write data as text. It
allows scripts, styles and connections of this server only, nothing inline, no plugin, no frame around the page
(against clickjacking), no form to another server, and no text that becomes markup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from fastapi import Request, Response

from app.errors import Problem
from app.native.one_record import is_known

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Assigning text to innerHTML and its like raises an error in browsers that know this.
TEXT_IS_NO_MARKUP = "; require-trusted-types-for 'script'; trusted-types 'none'"


class Assets:
    """The files of one page by name; `policy` is their Content-Security-Policy."""

    def __init__(self, files: Mapping[str, Path], policy: str) -> None:
        self._files = dict(files)
        self._headers = {
            "Content-Security-Policy": policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            # Asked for again each time, and answered with 304: a page and its scripts are of one version.
            "Cache-Control": "no-cache",
        }
        self._read: dict[str, tuple[bytes, bytes]] = {}

    async def answer(self, request: Request, name: str) -> Response:
        """The file of that name, or 304 when the browser has it. Raises Problem (404)."""
        path = self._files.get(name)
        if path is None:
            raise Problem("not-found", f"Nothing is at {request.url.path[:80]!r}.")
        if name not in self._read:
            body = await asyncio.to_thread(path.read_bytes)
            self._read[name] = body, b'"%b"' % blake2b(body, digest_size=16).hexdigest().encode()
        body, etag = self._read[name]
        headers = {**self._headers, "ETag": etag.decode()}
        if is_known(request.headers.get("if-none-match", "").encode("latin-1"), etag):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=MEDIA_TYPES[path.suffix], headers=headers)
