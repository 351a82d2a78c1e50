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
import math
from collections import Counter
from concurrent.futures import Executor
from typing import NamedTuple

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.security.addresses import network_of
from core.security.principal import Principal
from core.security.scopes import Scope, scope_of
from core.security.scram import Mechanism, ScramCredential, matches
from core.security.tokens import Tokens
from core.security.users import MAX_PASSWORD, Users

# Remembered passwords, right ones and wrong ones; if there are more, all are checked again.
_MAX_REMEMBERED = 10_000
# Seconds whose wrong passwords an address may send at once.
_BURST_SECONDS = 2.0


class Identity(NamedTuple):
    """A principal, and until when its credential is valid: milliseconds of the epoch, None for no end.

    `token_id` is that of the token by which the client has logged in; empty for a password.
    `scope` is that of a token, None for all rights of the principal. `by_password` says whether the login holds no
    longer than the password of the user.
    """

    principal: Principal
    expires_ms: int | None = None
    token_id: str = ""
    scope: Scope | None = None
    by_password: bool = False


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
        self._waiting: Counter[str] = Counter()
        # Until when the wrong passwords of an address take up its share.
        self._taken: dict[str, float] = {}
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
        self._admit(address, mark)
        mechanism = self._cheapest(user)
        credential, real = self._users.credential(mechanism, user)
        if self._was_wrong(mark, credential):
            return None
        self._waiting[address] += 1
        try:
            right = len(password) <= MAX_PASSWORD and await asyncio.get_running_loop().run_in_executor(
                self._threads, matches, mechanism, credential, password
            )
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]
        until = self._clock.monotonic() + self._config.password_cache_ms / 1000
        if not right or not real:
            self._note_wrong(address)
            _remember(self._wrong, mark, (until, credential))
            return None
        if self._users.credential(mechanism, user)[0] is not credential:
            return None
        _remember(self._remembered, mark, (until, credential))
        return Identity(Principal(name=user), by_password=True)

    async def _own_turn(self) -> None:
        """Return in a turn of the event loop that no other caller has got. Callers are served in order."""
        await self._turn.acquire()
        asyncio.get_running_loop().call_soon(self._turn.release)

    def _was_wrong(self, mark: bytes, credential: ScramCredential) -> bool:
        found = self._wrong.get(mark)
        return found is not None and found[0] > self._clock.monotonic() and found[1] == credential

    def _admit(self, address: str, mark: bytes) -> None:
        """Raise THROTTLING_QUOTA_EXCEEDED unless a password of an address may be checked now."""
        config = self._config
        wait = self._taken.get(address, 0.0) - self._clock.monotonic() - _BURST_SECONDS
        # A client that has logged in before does not suffer from a guesser with the same address.
        if wait > 0 and mark not in self._remembered:
            seconds = math.ceil(wait)
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"Too many wrong passwords came from this address; try again in {seconds} s.",
                retry_after=seconds,
            )
        if (
            self._waiting.total() >= config.max_password_checks
            or self._waiting[address] >= config.max_password_checks_per_address
        ):
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "Too many passwords are being checked; try again in a second.",
            )

    def _note_wrong(self, address: str) -> None:
        now = self._clock.monotonic()
        if len(self._taken) >= _MAX_REMEMBERED:
            self._taken = {host: until for host, until in self._taken.items() if until > now}
            if len(self._taken) >= _MAX_REMEMBERED:
                self._taken.clear()
        share = 1 / self._config.max_wrong_passwords_per_address
        self._taken[address] = max(self._taken.get(address, 0.0), now) + share

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
