"""SaslHandshake, SaslAuthenticate and raw SASL frames: the authentication of one connection (KIP-43, KIP-152).

`core.security.sasl` decides; here are its answers as messages, the times, and the threads that check passwords. A
client that fails is told one text for all reasons, a tenth of a second later, and closed (KIP-306).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from struct import Struct
from typing import Any, TypeVar

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.listeners.connection import Answer, Limits, RefusedError
from core.listeners.kafka.handler import Handler, table
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from core.protocol.traits import sasl_tokens_are_framed
from core.security.logins import OpenLogin
from core.security.oauthbearer import AccessToken
from core.security.passwords import Identity
from core.security.plain import Login
from core.security.sasl import MECHANISMS, Accepted, Challenge, Rejected, SaslMachine, State

log = logging.getLogger(__name__)

T = TypeVar("T")

_SIZE = Struct(">i")
_FOREVER = float("inf")


class Authentication:
    """The user of one connection, and until when it is valid. Without `words` clients need not authenticate.

    `words` are those of the listener's option `auth`. A request that begins at `valid_until` or later has to be
    admitted: seconds of the monotonic clock. `act_as` is called with a proven identity and its mechanism.
    """

    def __init__(self, broker: Broker, words: Sequence[str], act_as: Callable[[Identity, str], None]) -> None:
        self._broker = broker
        self._act_as = act_as
        self._host = ""
        self.machine: SaslMachine | None = None
        self.valid_until = _FOREVER
        # The answer under way is the last one.
        self.closing = False
        # The user or the token of the login was deleted, or the password changed.
        self.ended = False
        self._limits: Limits | None = None
        self._login: OpenLogin | None = None
        if words:
            names = [MECHANISMS[word] for word in words]
            self.machine = SaslMachine(names, broker.users.credential, broker.clock.secret_bytes)
            self.valid_until = 0.0

    def connected(self, host: str) -> Limits | None:
        """Take the address of the client; return what holds until it has authenticated."""
        self._host = host
        if self.machine is not None:
            config = self._broker.config
            ready_by = self._broker.clock.monotonic() + config.authentication_timeout_ms / 1000
            self._limits = Limits(config.unauthenticated_max_frame_bytes, ready_by)
        return self._limits

    @property
    def takes_raw(self) -> bool:
        """Whether the next frame is a SASL token without a header."""
        return self.machine is not None and self.machine.takes_raw

    def admit(self, api_key: int) -> None:
        """Raise RefusedError for a request that may not be made yet, or no longer."""
        if self.machine is not None and not self.machine.admits(api_key):
            over = self.machine.state is State.AUTHENTICATED
            raise RefusedError(
                "its session is over, and it has not authenticated again"
                if over
                else "it has not authenticated"
            )

    def versions_answered(self, good: bool) -> bool:
        """See `SaslMachine.versions_answered`."""
        return self.machine is None or self.machine.versions_answered(good)

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Any:
        """Return the answer to a SaslHandshake, or a coroutine of it."""
        machine = self.machine
        if machine is None:
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
        if machine.state is State.AUTHENTICATED:
            if not machine.begin_again(self._broker.clock.monotonic()):
                return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
            self.valid_until = 0.0
        if machine.state is State.TOKENS:
            return self.fail(SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE))
        offered = list(machine.mechanisms)
        if machine.handshake(request.mechanism, framed=sasl_tokens_are_framed(version)):
            return SaslHandshakeResponse(mechanisms=offered)
        return self.fail(SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered))

    async def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        """Return the answer to a SaslAuthenticate request."""
        assert self.machine is not None
        outcome = await self._outcome(token)
        if isinstance(outcome, Challenge):
            return SaslAuthenticateResponse(auth_bytes=outcome.token)
        if isinstance(outcome, Accepted):
            lifetime = self._accepted(outcome.identity)
            return SaslAuthenticateResponse(auth_bytes=outcome.token, session_lifetime_ms=lifetime)
        refusal = SaslAuthenticateResponse(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self.machine.mechanism}",
        )
        return await self.fail(refusal)

    async def raw(self, token: bytes) -> Answer:
        """Return the answer to a raw frame. Raises RefusedError: here a failure has no message."""
        outcome = await self._outcome(token)
        if isinstance(outcome, Rejected):
            await self.fail(None)
            raise RefusedError("authentication failed")
        if isinstance(outcome, Accepted):
            self._accepted(outcome.identity)
        return [_SIZE.pack(len(outcome.token)) + outcome.token]

    async def fail(self, response: T) -> T:
        """Return an answer after Kafka's delay, and have the connection closed after it."""
        assert self.machine is not None
        self.machine.state = State.FAILED
        self.valid_until = 0.0
        await asyncio.sleep(self._broker.config.failed_authentication_delay_ms / 1000)
        self._broker.audit.failed_login(self.machine.claimed, self.machine.mechanism, self._host)
        log.info("%s: authentication failed, mechanism %s", self._host, self.machine.mechanism or "unknown")
        self.closing = True
        return response

    async def _outcome(self, token: bytes) -> Challenge | Accepted | Rejected:
        machine, now = self.machine, self._broker.clock.monotonic
        assert machine is not None
        outcome = machine.authenticate(token, now())
        if isinstance(outcome, AccessToken | Login):
            return machine.checked(await self._identity(outcome), now())
        return outcome

    async def _identity(self, login: Login | AccessToken) -> Identity | None:
        """Return the user of a password or a token, None if it is not valid."""
        try:
            if isinstance(login, AccessToken):
                return Identity(*await self._broker.jwts.verify(login.token))
            return await self._broker.passwords.check(login.user, login.password, self._host)
        except BrokerError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                log.warning("%s: %s", self._host, error.message)
            return None

    def _accepted(self, identity: Identity) -> int:
        """Let the client in; return for how many milliseconds, 0 for no end."""
        config, clock = self._broker.config, self._broker.clock
        lifetimes = [config.max_reauth_ms] if config.max_reauth_ms else []
        if identity.expires_ms is not None:
            lifetimes.append(max(1, identity.expires_ms - clock.wall_ms()))
        lifetime = min(lifetimes, default=0)
        assert self.machine is not None
        self._act_as(identity, self.machine.mechanism)
        self._broker.audit.login(str(identity.principal), self.machine.mechanism, self._host)
        self.close()
        # That the time of a login is over ends no request under way (KIP-368), so that it has no end here.
        self._login = self._broker.logins.add(identity._replace(expires_ms=None), self._end)
        self.valid_until = clock.monotonic() + lifetime / 1000 if lifetime else _FOREVER
        if self._limits is not None:
            self._limits.max_frame_bytes, self._limits.ready_by = config.max_frame_bytes, _FOREVER
        return lifetime

    def _end(self) -> None:
        """The user, the password or the token is no longer valid: answer nothing more, and close within a second."""
        assert self.machine is not None and self._limits is not None
        self.ended = self.closing = True
        self.machine.state = State.FAILED
        self.valid_until = self._limits.ready_by = 0.0

    def close(self) -> None:
        """Take note that the connection is closed, or logs in again."""
        if self._login is not None:
            self._login.close()


def sasl_handshake(session: Any, request: SaslHandshakeRequest) -> Any:
    """Answer which mechanism may be used; ILLEGAL_SASL_STATE on a listener without authentication."""
    return session.authentication.handshake(request, session.version)


def sasl_authenticate(
    session: Any, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Coroutine[Any, Any, SaslAuthenticateResponse]:
    """Take one token of the exchange."""
    machine = session.authentication.machine
    if machine is None or machine.state is State.AUTHENTICATED:
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication",
        )
    answer: Coroutine[Any, Any, SaslAuthenticateResponse] = session.authentication.authenticate(
        bytes(request.auth_bytes)
    )
    return answer


HANDLERS = table(Handler(17, sasl_handshake, needs=()), Handler(36, sasl_authenticate, needs=()))
