"""The callers of a gateway that calls the cluster as them (`--upstream-identity caller`).

The password or access token of a request is checked by a login at the cluster, which opens connections for that
caller alone (`CallerBroker`). They are found again by an HMAC of the credentials, never by a name: two callers share
nothing, and neither do two passwords of one user. The cluster decides what a caller may do; without credentials a
request may do nothing, for it would act as the gateway.

A login is believed for `password_cache_ms`. Then another connection logs in with the same credentials, also while a
stream lasts: if the cluster refuses them, all requests with them end. Connections of a caller without a request for
`upstream_caller_idle_ms` are closed; beyond `upstream_max_callers` those that were not used for the longest time.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from core.client.link import open_link
from core.client.network import Network, Tcp
from core.client.settings import MIB, Address, ClientSettings, Login
from core.errors import BrokerError, ErrorCode
from core.security.addresses import network_of
from core.security.authorizer import Authorizer
from core.security.guarded import Guarded, Guards
from core.security.guarded_users import Ruled
from core.security.guesses import Guesses
from core.security.logins import OpenLogins
from core.security.passwords import Identity
from core.security.principal import Caller, Principal
from core.security.quotas import QuotaTable
from core.security.users import MAX_PASSWORD
from core.upstream.caller_broker import CallerBroker

log = logging.getLogger(__name__)

# Memory of one caller: windows of batches, and records on their way.
_FETCH_MEMORY, _BUFFER_MEMORY = 8 * MIB, 16 * MIB
# A wrong password is not tried again for so long: an operator may just have created its user in the cluster.
_WRONG_SECONDS = 5.0
_MAX_WRONG = 10_000
_MAX_NAME = 255
_OAUTH = "OAUTHBEARER"


class _Session:
    """The connections of one caller. `checked` and `used` are in the clock's monotonic time."""

    def __init__(
        self, identity: Identity, settings: ClientSettings, broker: CallerBroker, guards: Guards, now: float
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.broker = broker
        self.guards = guards
        self.checked = self.used = now


class Callers:
    """All callers of one gateway. Used on the event loop. `addresses` returns where brokers listen, the best first.

    It is the `PasswordChecks` of the process, and gives the facade of a caller as `Guards` does.
    """

    def __init__(
        self,
        base: Ruled,
        settings: ClientSettings,
        network: Network | None,
        logins: OpenLogins,
        addresses: Callable[[], list[Address]],
    ) -> None:
        assert settings.login is not None
        self._base = base
        self._clock = base.clock
        self._config = base.config
        self._settings = settings
        self._mechanism = settings.login.mechanism
        self._network = network
        self._logins = logins
        self._addresses = addresses
        self._guesses = Guesses(self._config, self._clock)
        self._key = self._clock.secret_bytes(32)
        self._sessions: dict[bytes, _Session] = {}
        self._entering: dict[bytes, asyncio.Task[_Session | None]] = {}
        # Until when credentials are known to be wrong.
        self._wrong: dict[bytes, float] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._quotas = QuotaTable()
        self._nothing = Guards(base, Authorizer(enabled=True), self._quotas)

    def use_tls(self, tls: ssl.SSLContext | None) -> None:
        """Open connections to come with another context; of callers that have some already, too."""
        self._settings = replace(self._settings, tls=tls)
        for session in self._sessions.values():
            session.settings = replace(session.settings, tls=tls)
            session.broker.view.cluster.links.use_tls(tls)

    def __len__(self) -> int:
        return len(self._sessions)

    # --- the facade of a caller ------------------------------------------------------------------------------

    def of(self, caller: Caller, *, mutes: bool = False) -> Guarded:
        """Return the facade of a caller; without credentials, one that may do nothing.

        Raises SASL_AUTHENTICATION_FAILED if its connections were closed since its login.
        """
        if not caller.credential:
            return self._nothing.of(caller, mutes=mutes)
        session = self._sessions.get(caller.credential)
        if session is None:
            raise BrokerError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, "The login at the cluster has ended; log in again."
            )
        return session.guards.of(caller, mutes=mutes)

    # --- PasswordChecks --------------------------------------------------------------------------------------

    def token(self, text: str) -> Identity | None:
        """Return None: a gateway without users has no tokens."""
        return None

    def standing(self, identity: Identity) -> object:
        """Return nothing: `still_valid` asks for the connections."""
        return None

    def still_valid(self, identity: Identity, standing: object) -> bool:
        """Return whether the connections of a login are open, and its time is not over."""
        session = self._sessions.get(identity.credential)
        if session is None or (
            identity.expires_ms is not None and identity.expires_ms <= self._clock.wall_ms()
        ):
            return False
        session.used = self._clock.monotonic()
        return True

    async def check(self, user: str, password: str, address: str) -> Identity | None:
        """Return the user of a password that the cluster takes; None if it refuses it.

        `address` is that of the client. Raises THROTTLING_QUOTA_EXCEEDED if too many logins are under way, or the
        address has sent too many wrong ones, or all connections of callers are in use; LinkLost without the cluster.
        """
        if self._mechanism == _OAUTH or not 0 < len(user) <= _MAX_NAME or len(password) > MAX_PASSWORD:
            return None
        if not password or "\0" in user + password:
            return None
        identity = Identity(Principal(name=user), by_password=True, credential=self._mark(user, password))
        return await self._enter(identity, Login(self._mechanism, user, _constant(password)), address)

    async def access_token(self, token: str, owner: Identity, address: str) -> Identity | None:
        """Return the login of an access token that the cluster takes as well; None if it refuses it.

        Limits and errors are those of `check`.
        """
        if self._mechanism != _OAUTH:
            return None
        name = owner.principal.name
        identity = owner._replace(credential=self._mark(name, token))
        return await self._enter(identity, Login(_OAUTH, name, _constant(token)), address)

    def _mark(self, user: str, secret: str) -> bytes:
        return hmac.digest(self._key, f"{user}\0{secret}".encode("utf-8", "surrogatepass"), "sha256")

    async def _enter(self, identity: Identity, login: Login, address: str) -> Identity | None:
        mark = identity.credential
        session = self._sessions.get(mark)
        now = self._clock.monotonic()
        if session is not None and now < session.checked + self._config.password_cache_ms / 1000:
            session.used = now
            return session.identity
        address = network_of(address)
        self._guesses.admit(address, known=session is not None)
        if self._wrong.get(mark, 0.0) > now:
            return None
        with self._guesses.waiting(address):
            task = self._entering.get(mark)
            if task is None:
                settings = replace(
                    self._settings, login=login, fetch_memory=_FETCH_MEMORY, buffer_memory=_BUFFER_MEMORY
                )
                task = asyncio.get_running_loop().create_task(self._log_in(identity, settings))
                self._entering[mark] = task
                task.add_done_callback(lambda done: self._entered(mark, done))
            # A caller that is cancelled leaves the others their login.
            entered = await asyncio.shield(task)
        if entered is None:
            self._guesses.note_wrong(address)
            return None
        return entered.identity

    def _entered(self, mark: bytes, task: asyncio.Task[_Session | None]) -> None:
        self._entering.pop(mark, None)
        if not task.cancelled():
            # The callers may all have been cancelled.
            task.exception()

    async def _log_in(self, identity: Identity, settings: ClientSettings) -> _Session | None:
        """Return the session of credentials; None if the cluster refuses them."""
        known = self._sessions.get(identity.credential)
        try:
            if known is not None:
                await self._check_again(known)
                return known
            return await self._open(identity, settings)
        except BrokerError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
        if len(self._wrong) >= _MAX_WRONG:
            self._wrong.clear()
        self._wrong[identity.credential] = self._clock.monotonic() + _WRONG_SECONDS
        return None

    async def _open(self, identity: Identity, settings: ClientSettings) -> _Session:
        self._make_space()
        broker = CallerBroker(self._base, settings, self._network)
        await broker.open(self._base.cluster_id)
        guards = Guards(broker, Authorizer(), self._quotas)
        session = _Session(identity, settings, broker, guards, self._clock.monotonic())
        self._sessions[identity.credential] = session
        return session

    async def _check_again(self, session: _Session) -> None:
        """Log in once more with the credentials of a session; end it if the cluster refuses them.

        A cluster that cannot be reached says nothing: the open connections will tell.
        """
        session.checked = self._clock.monotonic()
        for address in self._addresses():
            try:
                link = await open_link(address, session.settings, self._clock, self._network or Tcp())
            except BrokerError as error:
                if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                    log.info("the cluster refuses the credentials of %s now", session.identity.principal.name)
                    self._end(session)
                    raise
                continue
            link.close()
            return

    # --- the life of sessions --------------------------------------------------------------------------------

    def _make_space(self) -> None:
        """Close what was not used for the longest time. Raises THROTTLING_QUOTA_EXCEEDED if all is in use."""
        limit = self._config.upstream_max_callers
        if len(self._sessions) + len(self._entering) <= limit:
            return
        idle = [one for one in self._sessions.values() if not self._in_use(one)]
        if not idle:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{limit} callers have connections to the cluster, and all of them are in use; try again later, or "
                "raise SLUICE_UPSTREAM_MAX_CALLERS.",
            )
        self._end(min(idle, key=lambda one: one.used))

    def _in_use(self, session: _Session) -> bool:
        identity = session.identity
        return self._logins.has(identity.principal.name, identity.credential)

    async def sweep(self) -> None:
        """Close the connections of idle callers; check the credentials of the others again when it is time."""
        now = self._clock.monotonic()
        for session in list(self._sessions.values()):
            session.broker.view.keep_following()
            if self._in_use(session):
                session.used = now
                if now >= session.checked + self._config.password_cache_ms / 1000:
                    try:
                        await self._check_again(session)
                    except BrokerError:
                        continue
            elif now - session.used > self._config.upstream_caller_idle_ms / 1000:
                self._end(session)

    def _end(self, session: _Session) -> None:
        """Close the connections of a caller. Requests that are under way end."""
        identity = session.identity
        if self._sessions.get(identity.credential) is session:
            del self._sessions[identity.credential]
        self._logins.credential_refused(identity.principal.name, identity.credential)
        task = asyncio.get_running_loop().create_task(session.broker.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def drain(self) -> None:
        """Answer every request that waits."""
        for session in self._sessions.values():
            session.broker.drain()

    async def close(self) -> None:
        """Close all connections."""
        for task in list(self._entering.values()):
            task.cancel()
        await asyncio.gather(*self._entering.values(), return_exceptions=True)
        for session in list(self._sessions.values()):
            self._end(session)
        await asyncio.gather(*self._closing, return_exceptions=True)


def _constant(secret: str) -> Callable[[], Awaitable[str]]:
    async def give() -> str:
        return secret

    return give
