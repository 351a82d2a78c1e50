"""The setup token: by it the first user is created over a listener with authentication.

A start that finds no user makes it. It is valid for a quarter of an hour and for one user. It ends as soon as there
is a user, however that was created.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager

from core.clock import Clock
from core.security.users import Users
from core.vocabulary.users import TOKEN_PREFIX

SETUP_SECONDS = 15 * 60


class SetupToken:
    """The setup token of one process. There is none before `issue`."""

    def __init__(self, clock: Clock, users: Users) -> None:
        self._clock = clock
        self._users = users
        self._digest = b""
        self._until = 0.0
        self._claimed = False

    def issue(self) -> str:
        """Make the token and return it: the only time that it is shown. An earlier one is no longer valid."""
        secret = base64.urlsafe_b64encode(self._clock.secret_bytes(32)).rstrip(b"=").decode()
        text = f"{TOKEN_PREFIX}setup_{secret}"
        self._digest = hashlib.sha256(text.encode()).digest()
        self._until = self._clock.monotonic() + SETUP_SECONDS
        return text

    def fits(self, text: str) -> bool:
        """Return whether a text is the token, and the token is still valid."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        right = hmac.compare_digest(digest, self._digest)
        return right and not self._users and self._clock.monotonic() < self._until

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Claim the token while a user is created; False for all but the first client that tries at once."""
        if self._claimed or self._users:
            yield False
            return
        self._claimed = True
        try:
            yield True
        finally:
            self._claimed = False
