"""Sessions of the console: a login of a browser, and the short bearer tokens of its pages.

A session is known by 32 random bytes in a cookie, a bearer token by 32 more. Both are kept as digests, in memory
alone: a restart of the broker ends all sessions. A session ends with its logout, after `IDLE_SECONDS` without a new
bearer token, after `MAX_SECONDS`, with the credential that opened it, and when its user is deleted or gets another
password. A bearer token ends with its session, or after `BEARER_SECONDS`.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field

from core.clock import Clock
from core.security.passwords import Identity, PasswordChecks
from core.vocabulary.users import TOKEN_PREFIX

IDLE_SECONDS = 30 * 60
MAX_SECONDS = 12 * 3600
BEARER_SECONDS = 5 * 60
# Sessions of one user, of all users, and bearer tokens of one session (each page has its own): the oldest one ends.
MAX_SESSIONS_PER_USER, MAX_SESSIONS, MAX_BEARERS = 20, 2_000, 50
BEARER_PREFIX = f"{TOKEN_PREFIX}console_"


@dataclass(slots=True)
class Session:
    """One login. `user` is the name of the principal; times are those of the monotonic clock."""

    identity: Identity
    standing: object
    until: float
    used: float
    bearers: dict[bytes, float] = field(default_factory=dict)

    @property
    def user(self) -> str:
        """The name to show."""
        return self.identity.principal.name


class Sessions:
    """The sessions of one process. All methods are called on the event loop."""

    def __init__(self, clock: Clock, passwords: PasswordChecks) -> None:
        self._clock = clock
        self._passwords = passwords
        # By digest, the oldest first.
        self._sessions: dict[bytes, Session] = {}
        self._bearers: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, identity: Identity) -> str:
        """Open a session and return its id, which is shown this once."""
        self._expire()
        own = [key for key, one in self._sessions.items() if one.identity.principal == identity.principal]
        if len(own) >= MAX_SESSIONS_PER_USER:
            self._end(own[0])
        elif len(self._sessions) >= MAX_SESSIONS:
            self._end(next(iter(self._sessions)))
        now = self._clock.monotonic()
        text = self._secret()
        standing = self._passwords.standing(identity)
        self._sessions[_digest(text)] = Session(identity, standing, now + MAX_SECONDS, now)
        return text

    def close(self, session_id: str) -> None:
        """End a session, if there is one with that id."""
        if (key := _digest(session_id)) in self._sessions:
            self._end(key)

    def bearer(self, session_id: str) -> tuple[str, Session] | None:
        """Return a new bearer token of a session, and the session; None if it is not valid."""
        key = _digest(session_id)
        session = self._valid(key)
        if session is None:
            return None
        now = session.used = self._clock.monotonic()
        for old, until in list(session.bearers.items()):
            # In the order of their times: the first is the oldest.
            if until <= now or len(session.bearers) >= MAX_BEARERS:
                del session.bearers[old], self._bearers[old]
        text = BEARER_PREFIX + self._secret()
        digest = _digest(text)
        session.bearers[digest] = now + BEARER_SECONDS
        self._bearers[digest] = key
        return text, session

    def owner_of(self, text: str) -> Identity | None:
        """Return the user of a bearer token; None if it is none of these, or is not valid."""
        if not text.startswith(BEARER_PREFIX):
            return None
        key = self._bearers.get(digest := _digest(text))
        session = None if key is None else self._valid(key)
        if session is None or session.bearers[digest] <= self._clock.monotonic():
            return None
        return session.identity

    def _valid(self, key: bytes) -> Session | None:
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._clock.monotonic()
        in_time = now < session.until and now < session.used + IDLE_SECONDS
        if in_time and self._passwords.still_valid(session.identity, session.standing):
            return session
        self._end(key)
        return None

    def _expire(self) -> None:
        for key in list(self._sessions):
            self._valid(key)

    def _end(self, key: bytes) -> None:
        for digest in self._sessions.pop(key).bearers:
            del self._bearers[digest]

    def _secret(self) -> str:
        return base64.urlsafe_b64encode(self._clock.secret_bytes(32)).rstrip(b"=").decode()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
