"""LocalSecurity: users, passwords, tokens, access rules and quotas of one process, put together.

The embedded broker and a gateway over another cluster have the same: rows in the store of their data directory, and
in memory what is asked for each request. The facade of one caller is built on it (`core.security.guarded`).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from core.clock import Clock
from core.config import Config
from core.metadata.acls import load_acls
from core.metadata.quotas import load_quotas
from core.metadata.store import Store
from core.metadata.users import load_users
from core.security.acls import Acls
from core.security.audit import Audit
from core.security.authorizer import Authorizer
from core.security.guarded import Guards
from core.security.guarded_users import Ruled
from core.security.jwt import JwtVerifier
from core.security.keeper import Keeper
from core.security.logins import OpenLogins
from core.security.passwords import Passwords
from core.security.quotas import QuotaTable
from core.security.stored_quotas import Quotas
from core.security.tokens import Tokens
from core.security.users import Users

# The administrator of a process whose settings name none.
DEFAULT_SUPER_USERS = ("User:admin",)


class LocalSecurity:
    """The users, tokens, access rules and quotas of one process. Call `load` once the store is open, then `close`.

    `keeper` says whether this process may change them.
    """

    def __init__(self, config: Config, clock: Clock, store: Store, keeper: Keeper) -> None:
        self._config = config
        self._store = store
        self._threads = ThreadPoolExecutor(config.password_threads, thread_name_prefix="password")
        self.users = Users(config, clock, store, self._threads)
        self.tokens = Tokens(config, clock, store, self.users)
        self.logins = OpenLogins(clock)
        self.users.when_deleted(self.logins.user_deleted)
        self.users.when_password_changed(self.logins.password_changed)
        self.tokens.when_deleted(self.logins.token_deleted)
        self.passwords = Passwords(config, clock, self.users, self.tokens, self._threads)
        self.jwts = JwtVerifier(config.oauth, clock)
        self.audit = Audit(config, clock, self.users)
        self.authorizer = Authorizer(
            enabled=config.authorizer or bool(config.super_users),
            super_users=config.super_users or DEFAULT_SUPER_USERS,
            allow_if_no_acl=config.allow_everyone_if_no_acl_found,
            audit=self.audit,
        )
        self.users.when_changed(self._switch_authorizer)
        self.quota_table = QuotaTable()
        self.quotas = Quotas(config, store, keeper, self.quota_table)
        self.acls = Acls(config, store, keeper, self.authorizer, self.users.to_the_end)

    def guards(self, broker: Ruled) -> Guards:
        """Return the guarded facades of a broker whose callers these are."""
        return Guards(broker, self.authorizer, self.quota_table)

    async def load(self, settings: Mapping[str, str]) -> None:
        """Take over what the store has; `settings` are its settings."""
        self.acls.load(await self._store.read(load_acls))
        self.quotas.load(await self._store.read(load_quotas))
        users, credentials, tokens = await self._store.read(load_users)
        self.users.load(settings, users, credentials)
        self.tokens.load(tokens)

    def expire(self) -> None:
        """End logins that have expired, and log how many audit events were dropped. A step of the background."""
        self.logins.expire()
        self.audit.tell_dropped()

    async def close(self) -> None:
        """Wait for the changes under way, and end the threads."""
        await self.users.close()
        self._threads.shutdown(wait=False)

    def _switch_authorizer(self) -> None:
        """Let all callers do everything until there is a user, unless a setting asks for an authorizer.

        The deletion of the last user does not open a process that runs: all its clients would be administrators.
        """
        config = self._config
        asked = config.authorizer or bool(config.super_users)
        self.authorizer.switch(asked or bool(self.users) or self.authorizer.enabled)
