"""Open logins: connections and requests of a user, which must end with the user, its password or the token.

A connection of the Kafka listener logs in once, and a stream of HTTP may last for days. Each is noted here while it
lasts, so that a user that is deleted, a password that is changed, a token that is deleted and a token whose time is
over end it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from core.clock import Clock
from core.security.passwords import Identity
from core.vocabulary.users import TokenInfo


class OpenLogin:
    """One connection or request of a user. `close` it when it has ended by itself."""

    __slots__ = ("_open", "end", "identity")

    def __init__(self, open_logins: OpenLogins, identity: Identity, end: Callable[[], object]) -> None:
        self._open = open_logins
        self.identity = identity
        self.end = end

    def close(self) -> None:
        """Forget it. It may be called twice."""
        self._open.forget(self)


class OpenLogins:
    """The open logins of one broker, by user. All methods are called on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_user: dict[str, set[OpenLogin]] = {}
        # Those whose credential has an end.
        self._ending: set[OpenLogin] = set()

    def __len__(self) -> int:
        return sum(map(len, self._by_user.values()))

    def add(self, identity: Identity, end: Callable[[], object]) -> OpenLogin:
        """Note a login. `end` is called once: when its user or token is deleted, its password is changed, or its time
        is over.
        """
        login = OpenLogin(self, identity, end)
        self._by_user.setdefault(identity.principal.name, set()).add(login)
        if identity.expires_ms is not None:
            self._ending.add(login)
        return login

    def forget(self, login: OpenLogin) -> None:
        """See `OpenLogin.close`."""
        name = login.identity.principal.name
        self._ending.discard(login)
        found = self._by_user.get(name)
        if found is not None:
            found.discard(login)
            if not found:
                del self._by_user[name]

    def user_deleted(self, name: str) -> None:
        """End all logins of a user."""
        self._end(self._by_user.get(name, ()))

    def password_changed(self, name: str) -> None:
        """End the logins of a user by the password before; those by tokens and certificates continue."""
        self._end([login for login in self._by_user.get(name, ()) if login.identity.by_password])

    def has(self, name: str, credential: bytes) -> bool:
        """Return whether a connection or request of a user lasts that has logged in at the cluster with these."""
        return any(login.identity.credential == credential for login in self._by_user.get(name, ()))

    def credential_refused(self, name: str, credential: bytes) -> None:
        """End the logins with credentials that the cluster does not take any more."""
        of_user = self._by_user.get(name, ())
        self._end([login for login in of_user if login.identity.credential == credential])

    def token_deleted(self, token: TokenInfo) -> None:
        """End the logins with a token."""
        of_owner = self._by_user.get(token.owner, ())
        self._end([login for login in of_owner if login.identity.token_id == token.token_id])

    def expire(self) -> None:
        """End the logins whose time is over."""
        if self._ending:
            now = self._clock.wall_ms()
            self._end([login for login in self._ending if (login.identity.expires_ms or 0) <= now])

    def _end(self, logins: Collection[OpenLogin]) -> None:
        for login in list(logins):
            self.forget(login)
            login.end()
