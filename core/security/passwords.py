"""Check passwords that come in clear (PLAIN, Basic), and tokens, without letting a guesser take the processor.

A check is 7 ms of PBKDF2 in a thread of its own. A password that was right is remembered for a minute under an HMAC
with a key of this process, so that a client that sends it with each request pays 3 µs. A wrong one is remembered too,
for a user as for an unknown name: a client that is set up wrongly tries it again and again.

Checks that wait are counted, in all and by address: a guesser waits for itself. An address with too many wrong
passwords gets no check for a while, except of a password that was right before. Passwords that are not known take
turns, one in each turn of the event loop, so that a burst of them does not hold up others.

The thread has the usual priority. With a lower one it would be preempted more often while it holds the interpreter's
lock, and the event loop would wait for it.
"""

from __future__ import annotations

import asyncio
import hmac
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from core.clock import Clock
from core.config import Config
from core.security.addresses import network_of
from core.security.guesses import Guesses
from core.security.principal import Principal
from core.security.scopes import Scope, scope_of
from core.security.scram import Mechanism, ScramCredential, matches
from core.security.tokens import Tokens
from core.security.users import MAX_PASSWORD, Users

# Remembered passwords, right ones and wrong ones; if there are more, all are checked again.
_MAX_REMEMBERED = 10_000


class Identity(NamedTuple):
    """A principal, and until when its credential is valid: milliseconds of the epoch, None for no end.

    `token_id` is that of the token by which the client has logged in; empty for a password.
    `scope` is that of a token, None for all rights of the principal. `by_password` says whether the login holds no
    longer than the password of the user. `credential` marks the login at the cluster of a gateway that acts as its
    callers; empty for a user of this process.
    """

    principal: Principal
    expires_ms: int | None = None
    token_id: str = ""
    scope: Scope | None = None
    by_password: bool = False
    credential: bytes = b""


class PasswordChecks(Protocol):
    """What checks the logins of requests: `Passwords`, or the cluster of a gateway (`core.upstream.callers`)."""

    def token(self, text: str) -> Identity | None:
        """Return the owner of a token; None if it is not valid."""

    def standing(self, identity: Identity) -> object:
        """Return what `still_valid` compares with later."""

    def still_valid(self, identity: Identity, standing: object) -> bool:
        """Return whether a login still holds."""
        ...

    async def check(self, user: str, password: str, address: str) -> Identity | None:
        """Return the user of a password or a token; None if it is wrong. Raises THROTTLING_QUOTA_EXCEEDED."""

    async def access_token(self, token: str, owner: Identity, address: str) -> Identity | None:
        """Return the login by a token of another issuer, which is verified and `owner`'s; None if it is refused.

        `address` is that of the client. Raises THROTTLING_QUOTA_EXCEEDED.
        """


class Passwords:
    """Checks passwords and tokens. All methods are called on the event loop; `threads` run PBKDF2."""

    def __init__(self, config: Config, clock: Clock, users: Users, tokens: Tokens, threads: Executor) -> None:
        self._config = config
        self._clock = clock
        self._users = users
        self._tokens = tokens
        self._threads = threads
        self._key = clock.secret_bytes(32)
        # Until when a password is remembered, and the credential that it fits.
        self._remembered: dict[bytes, tuple[float, ScramCredential]] = {}
        # The same of a wrong one; the credential of an unknown user is made up, and as good.
        self._wrong: dict[bytes, tuple[float, ScramCredential]] = {}
        self._guesses = Guesses(config, clock)
        self._turn = asyncio.Lock()

    def token(self, text: str) -> Identity | None:
        """Return the owner of a token; None if it is not valid."""
        info = self._tokens.owner_of(text)
        if info is None:
            return None
        return Identity(Principal(name=info.owner), info.expires_ms, info.token_id, scope_of(info.scope))

    def standing(self, identity: Identity) -> object:
        """Return what `still_valid` compares with later."""
        return self._users.standing(identity.principal.name)

    def still_valid(self, identity: Identity, standing: object) -> bool:
        """Return whether a login still holds: its time is not over, its token and its user are as they were."""
        expires = identity.expires_ms
        return (
            (expires is None or self._clock.wall_ms() < expires)
            and (not identity.token_id or self._tokens.holds(identity.token_id))
            and self.standing(identity) == standing
        )

    def at_once(self, user: str, password: str) -> Identity | None:
        """Return the user of a password or a token, if that is known without computing; None says nothing."""
        identity = self.token(password)
        if identity is not None:
            return identity if identity.principal.name == user else None
        remembered = self._remembered.get(self._mark(user, password))
        if remembered is None or remembered[0] <= self._clock.monotonic():
            return None
        # A change of the password makes another object; so does a user that is deleted and created again.
        valid = any(self._users.credential(m, user)[0] is remembered[1] for m in Mechanism)
        return Identity(Principal(name=user), by_password=True) if valid else None

    async def check(self, user: str, password: str, address: str) -> Identity | None:
        """Return the user of a password or a token; None if it is wrong, or there is no such user.

        `address` is that of the client; of IPv6 its network counts. Raises THROTTLING_QUOTA_EXCEEDED if too many
        checks wait, or the address has sent too many wrong passwords.
        """
        known = self.at_once(user, password)
        if known is not None:
            return known
        await self._own_turn()
        mark = self._mark(user, password)
        address = network_of(address)
        # Before all else, so that a refusal is cheap, and the same for every name.
        self._guesses.admit(address, known=mark in self._remembered)
        mechanism = self._cheapest(user)
        credential, real = self._users.credential(mechanism, user)
        if self._was_wrong(mark, credential):
            return None
        with self._guesses.waiting(address):
            right = len(password) <= MAX_PASSWORD and await asyncio.get_running_loop().run_in_executor(
                self._threads, matches, mechanism, credential, password
            )
        until = self._clock.monotonic() + self._config.password_cache_ms / 1000
        if not right or not real:
            self._guesses.note_wrong(address)
            _remember(self._wrong, mark, (until, credential))
            return None
        if self._users.credential(mechanism, user)[0] is not credential:
            return None
        _remember(self._remembered, mark, (until, credential))
        return Identity(Principal(name=user), by_password=True)

    async def access_token(self, token: str, owner: Identity, address: str) -> Identity | None:
        """See `PasswordChecks.access_token`: the token is enough."""
        return owner

    async def _own_turn(self) -> None:
        """Return in a turn of the event loop that no other caller has got. Callers are served in order."""
        await self._turn.acquire()
        asyncio.get_running_loop().call_soon(self._turn.release)

    def _was_wrong(self, mark: bytes, credential: ScramCredential) -> bool:
        found = self._wrong.get(mark)
        return found is not None and found[0] > self._clock.monotonic() and found[1] == credential

    def _cheapest(self, user: str) -> Mechanism:
        """SHA-512 takes more than twice as long; a user that Kafka's tools made may have it alone."""
        real = [mechanism for mechanism in Mechanism if self._users.credential(mechanism, user)[1]]
        return real[0] if real else Mechanism.SHA_256

    def _mark(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{user}\0{password}".encode("utf-8", "surrogatepass"), "sha256")


def _remember(
    found: dict[bytes, tuple[float, ScramCredential]], mark: bytes, entry: tuple[float, ScramCredential]
) -> None:
    if len(found) >= _MAX_REMEMBERED:
        found.clear()
    found[mark] = entry
