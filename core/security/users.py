"""Users and their SCRAM credentials: all of them in memory, and in SQLite.

Every broker has them all, so that a client can log in to each. A password is kept as SCRAM credentials alone, one for
each mechanism; what is sent in clear (PLAIN, Basic) is checked against the same rows.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.groups import Row
from core.metadata.store import Effect, Store
from core.metadata.topics import put_setting
from core.metadata.users import put_credentials, put_user, remove_credential, remove_user
from core.security.principal import ANONYMOUS
from core.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    Mechanism,
    ScramCredential,
    credential_of,
    salted_password,
)
from core.vocabulary.users import CredentialChange, CredentialInfo, UserInfo

T = TypeVar("T")

# The key of the salts of users that do not exist. It is stored with the first user, so that such a salt is the same
# after a restart and on each broker, as that of a user is.
FAKE_SALT_SETTING = "security.fake.salt"
MIN_PASSWORD, MAX_PASSWORD = 8, 1_024
# A name must fit into a path and into Basic, which ends it at the first colon (RFC 7617).
_NAME = re.compile(r"[^\x00-\x20\x7f-\xa0/:](?:[^\x00-\x1f\x7f-\x9f/:]{0,253}[^\x00-\x20\x7f-\xa0/:])?")


class Users:
    """The users of one broker. All methods are called on the event loop; `threads` run PBKDF2."""

    def __init__(self, config: Config, clock: Clock, store: Store, threads: Executor) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._threads = threads
        self._created: dict[str, int] = {}
        self._credentials: dict[tuple[str, Mechanism], ScramCredential] = {}
        self._fake_key = clock.secret_bytes(32)
        self._fake_key_is_stored = False
        # One change after the other, each carried out to its end though its client may leave.
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self._when_deleted: list[Callable[[str], None]] = []
        self._when_password_changed: list[Callable[[str], None]] = []
        self._when_changed: list[Callable[[], None]] = []

    def when_deleted(self, call: Callable[[str], None]) -> None:
        """Have `call` called with the name of each user that is deleted from now on."""
        self._when_deleted.append(call)

    def when_password_changed(self, call: Callable[[str], None]) -> None:
        """Have `call` called with the name of each user that loses a credential, such as an old password."""
        self._when_password_changed.append(call)

    def when_changed(self, call: Callable[[], None]) -> None:
        """Have `call` called when a user was created or deleted, and when users were loaded."""
        self._when_changed.append(call)

    def _tell(self) -> None:
        for call in self._when_changed:
            call()

    def load(self, settings: Mapping[str, str], users: Sequence[Row], credentials: Sequence[Row]) -> None:
        """Take over what the store has."""
        if (key := settings.get(FAKE_SALT_SETTING)) is not None:
            self._fake_key, self._fake_key_is_stored = bytes.fromhex(key), True
        before, self._created = self._created, dict(users)
        known = self._credentials
        found = {(name, Mechanism(number)): ScramCredential(*rest) for name, number, *rest in credentials}
        # What has not changed stays the same object: by that remembered passwords are known to be valid.
        self._replace({k: known[k] if known.get(k) == new else new for k, new in found.items()})
        # A user that was deleted and created again on another broker is not the same.
        for name in [name for name, created in before.items() if self._created.get(name) != created]:
            for call in self._when_deleted:
                call(name)
        self._tell()

    def __bool__(self) -> bool:
        return bool(self._created)

    def __contains__(self, name: object) -> bool:
        return name in self._created

    def all(self) -> list[UserInfo]:
        """Return all users, by name."""
        return [self._info(name) for name in sorted(self._created)]

    def get(self, name: str) -> UserInfo:
        """Return the user of that name. Raises RESOURCE_NOT_FOUND."""
        if name not in self._created:
            raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no user {name!r}.")
        return self._info(name)

    def _info(self, name: str) -> UserInfo:
        found = [(m, self._credentials.get((name, m))) for m in Mechanism]
        infos = tuple(CredentialInfo(int(m), c.iterations) for m, c in found if c is not None)
        return UserInfo(name, self._created[name], infos)

    def credential(self, mechanism: Mechanism, name: str) -> tuple[ScramCredential, bool]:
        """Return the credential of a user, and whether it is real: an unknown user gets one that no password fits."""
        found = self._credentials.get((name, mechanism))
        if found is not None:
            return found, True
        salt = hmac.digest(self._fake_key, name.encode("utf-8", "surrogatepass"), "sha256")[:SALT_BYTES]
        size = 32 if mechanism is Mechanism.SHA_256 else 64
        return ScramCredential(salt, bytes(size), bytes(size), self._config.scram_iterations), False

    def standing(self, name: str) -> object:
        """Return a value that is another one once the user is deleted, created again, or gets another password."""
        if name not in self._created:
            return None
        held = tuple(self._credentials.get((name, mechanism)) for mechanism in Mechanism)
        return self._created[name], held

    # --- changes -------------------------------------------------------------------------------------------

    async def create(self, name: str, password: str | None) -> UserInfo:
        """Create a user and return it once it is durable. Without a password it can log in with tokens alone.

        Raises DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL, POLICY_VIOLATION (too many users), NOT_CONTROLLER.
        """
        return await self.to_the_end(self._create(name, password))

    async def set_password(self, name: str, password: str) -> UserInfo:
        """Give a user another password. Raises RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL, NOT_CONTROLLER."""
        return await self.to_the_end(self._set_password(name, password))

    async def delete(self, name: str) -> None:
        """Delete a user with credentials and tokens. Raises RESOURCE_NOT_FOUND, NOT_CONTROLLER."""
        await self.to_the_end(self._delete(name))

    async def alter_credentials(self, changes: Sequence[CredentialChange]) -> None:
        """Set and remove SCRAM credentials in one transaction. A user without any left is deleted.

        Raises UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND, POLICY_VIOLATION,
        NOT_CONTROLLER.
        """
        await self.to_the_end(self._alter(changes))

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out a change of users, tokens or rules after those before it, though its client may leave.

        What the store has must be in memory as well.
        """
        task = asyncio.create_task(self._in_turn(work))
        self._changes.add(task)
        task.add_done_callback(self._changed)
        return await asyncio.shield(task)

    def _changed(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        # Looked at, also if the client has left.
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Wait for the changes under way."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._changing:
            return await work

    async def _create(self, name: str, password: str | None) -> UserInfo:
        check_name(name)
        if name in self._created:
            raise BrokerError(ErrorCode.DUPLICATE_RESOURCE, f"There is a user {name!r} already.")
        self._check_count(1)
        made = await self._credentials_of(password) if password is not None else {}
        now = self._clock.wall_ms()
        await self._put(name, made, now)
        self._created[name] = now
        self._tell()
        return self._info(name)

    async def _set_password(self, name: str, password: str) -> UserInfo:
        self.get(name)
        await self._put(name, await self._credentials_of(password), self._created[name])
        return self._info(name)

    async def _put(self, name: str, made: Mapping[Mechanism, ScramCredential], created_ms: int) -> None:
        rows = [_row(name, mechanism, credential) for mechanism, credential in made.items()]
        await self._submit([put_user(name, created_ms), put_credentials(rows)])
        self._replace(self._credentials | {(name, mechanism): one for mechanism, one in made.items()})

    def _replace(self, credentials: dict[tuple[str, Mechanism], ScramCredential]) -> None:
        """Have these credentials from now on, and tell whose are no longer valid."""
        before, self._credentials = self._credentials, credentials
        # One that a user gets in addition ends nothing: kafka-configs sets one mechanism after the other.
        for name in {key[0] for key, one in before.items() if credentials.get(key) is not one}:
            for call in self._when_password_changed:
                call(name)

    async def _delete(self, name: str) -> None:
        self.get(name)
        await self._submit([remove_user(name)])
        self._forget(name)

    def _forget(self, name: str) -> None:
        for call in self._when_deleted:
            call(name)
        self._created.pop(name, None)
        for mechanism in Mechanism:
            self._credentials.pop((name, mechanism), None)
        self._tell()

    async def _alter(self, changes: Sequence[CredentialChange]) -> None:
        self._check_count(
            len({c.name for c in changes if c.salted_password is not None} - self._created.keys())
        )
        now = self._clock.wall_ms()
        after = dict(self._credentials)
        effects: list[Effect] = []
        for change in changes:
            mechanism = mechanism_of(change.mechanism)
            if change.salted_password is None:
                if after.pop((change.name, mechanism), None) is None:
                    text = "Attempt to delete a user credential that does not exist"
                    raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, text)
                effects.append(remove_credential(change.name, mechanism))
                continue
            check_name(change.name)
            check_iterations(change.iterations)
            if not change.salt or not change.salted_password:
                raise BrokerError(
                    ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt or the salted password is empty."
                )
            new = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
            after[change.name, mechanism] = new
            effects += [put_user(change.name, now), put_credentials([_row(change.name, mechanism, new)])]
        left = {name for name, _ in after}
        gone = {change.name for change in changes} - left
        effects += [remove_user(name) for name in gone]
        await self._submit(effects)
        self._replace(after)
        for change in changes:
            if change.name in left:
                self._created.setdefault(change.name, now)
        self._tell()
        for name in gone:
            self._forget(name)

    async def _submit(self, effects: Sequence[Effect]) -> None:
        if not self._fake_key_is_stored:
            effects = [*effects, put_setting(FAKE_SALT_SETTING, self._fake_key.hex())]
        await self._store.submit(effects)
        self._fake_key_is_stored = True

    def _check_count(self, count: int) -> None:
        if len(self._created) + count > self._config.max_users:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"There are {len(self._created)} users already; delete some first.",
            )

    async def _credentials_of(self, password: str) -> dict[Mechanism, ScramCredential]:
        check_password(password)
        iterations = max(MIN_ITERATIONS, self._config.scram_iterations)
        made = {}
        for mechanism in Mechanism:
            salt = self._clock.secret_bytes(SALT_BYTES)
            salted = await asyncio.get_running_loop().run_in_executor(
                self._threads, salted_password, mechanism, password, salt, iterations
            )
            made[mechanism] = credential_of(mechanism, salted, salt, iterations)
        return made


def check_name(name: str) -> None:
    """Raise UNACCEPTABLE_CREDENTIAL for a name that no user may have."""
    if name == ANONYMOUS.name or not _NAME.fullmatch(name):
        raise BrokerError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Invalid user name {name[:100]!r}: use 1 to 255 characters, no '/', no ':', no control characters, no "
            f"blanks at the ends, and not {ANONYMOUS.name}.",
        )


def check_password(password: str) -> None:
    """Raise UNACCEPTABLE_CREDENTIAL for a password that is too short or too long, or has control characters."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD or any(
        ord(c) < 32 or ord(c) == 127 for c in password
    ):
        raise BrokerError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A password has {MIN_PASSWORD} to {MAX_PASSWORD} characters and no control characters.",
        )


def check_iterations(iterations: int) -> None:
    """Raise UNACCEPTABLE_CREDENTIAL for a number of PBKDF2 rounds outside of Kafka's bounds."""
    if iterations < MIN_ITERATIONS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def mechanism_of(number: int) -> Mechanism:
    """Return the mechanism of Kafka's number. Raises UNSUPPORTED_SASL_MECHANISM."""
    try:
        return Mechanism(number)
    except ValueError:
        raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None


def _row(name: str, mechanism: Mechanism, one: ScramCredential) -> Row:
    return (name, int(mechanism), one.salt, one.stored_key, one.server_key, one.iterations)
