"""The SASL exchange of one connection, without I/O: which requests it admits, and what comes of a token.

    a connection begins    ApiVersions, SaslHandshake
    after ApiVersions      SaslHandshake alone; ApiVersions again if its version was refused
    after SaslHandshake    tokens: in SaslAuthenticate requests (handshake version 1) or as raw frames (version 0)
    authenticated          anything, until its time is over; a SaslHandshake begins again (KIP-368)

Source: Kafka protocol guide, "SASL Authentication Sequence"; KIP-43, KIP-152, KIP-368; Kafka's
SaslServerAuthenticator for what the texts leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from core.security import oauthbearer, plain
from core.security.oauthbearer import REFUSAL, AccessToken, OauthBearerError
from core.security.passwords import Identity
from core.security.plain import Login, PlainError
from core.security.principal import Principal
from core.security.scram import Mechanism, ScramCredential, ScramError, ScramExchange

SCRAM = {mechanism.sasl_name: mechanism for mechanism in Mechanism}
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
# By the word in the option `auth` of a listener.
MECHANISMS = {
    "scram-sha-256": "SCRAM-SHA-256",
    "scram-sha-512": "SCRAM-SHA-512",
    "plain": PLAIN,
    "oauthbearer": OAUTHBEARER,
}

_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 18, 17, 36
# A client may not log in more often over one connection (KIP-368).
_REAUTHENTICATION_SECONDS = 1.0


class State(Enum):
    """Where a connection is."""

    NEW = auto()
    VERSIONS_KNOWN = auto()
    TOKENS = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


_ADMITTED = {
    State.NEW: {_API_VERSIONS, _HANDSHAKE},
    State.VERSIONS_KNOWN: {_HANDSHAKE},
    # The other two are answered with ILLEGAL_SASL_STATE.
    State.TOKENS: {_AUTHENTICATE, _API_VERSIONS, _HANDSHAKE},
    # Asked only when the time of the session is over.
    State.AUTHENTICATED: {_HANDSHAKE},
    State.FAILED: set[int](),
}


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange continues: send this token, and wait for the next one."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client has proven its user: send this token."""

    identity: Identity
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The client has not proven its user. It gets one text, whatever the reason."""


Outcome = Challenge | Login | AccessToken | Accepted | Rejected
"""What comes of a token. A `Login` or `AccessToken` is checked, and then `SaslMachine.checked` called."""


class SaslMachine:
    """The SASL exchanges of one connection. `mechanisms` are the names that its listener offers.

    `find` returns the SCRAM credential of a user, and whether it is real; `random` a nonce of the given length.
    """

    def __init__(
        self,
        mechanisms: Sequence[str],
        find: Callable[[Mechanism, str], tuple[ScramCredential, bool]],
        random: Callable[[int], bytes],
    ) -> None:
        self.mechanisms = tuple(mechanisms)
        self.state = State.NEW
        self.mechanism = ""
        self.principal: Principal | None = None
        # The user that the client says to be, not proven.
        self.claimed = ""
        self._find = find
        self._random = random
        self._framed = True
        self._scram: ScramExchange | None = None
        self._asked = False
        self._login: Login | AccessToken | None = None
        # The client has been told that its token is refused, and is to end the exchange.
        self._refused = False
        # The mechanism of the first exchange, which later ones must repeat, and when the last one was accepted.
        self._first_mechanism = ""
        self._accepted = float("-inf")

    @property
    def takes_raw(self) -> bool:
        """Whether the next frame is a token without a request header."""
        return self.state is State.TOKENS and not self._framed

    def admits(self, api_key: int) -> bool:
        """Whether a request may be decoded; the connection is closed if not."""
        return api_key in _ADMITTED[self.state]

    def versions_answered(self, good: bool) -> bool:
        """Note an ApiVersions request; return False if this is not its time. Not `good`: another one may follow."""
        if self.state is State.AUTHENTICATED:
            return True
        if self.state is not State.NEW:
            self.state = State.FAILED
            return False
        if good:
            self.state = State.VERSIONS_KNOWN
        return True

    def begin_again(self, now: float) -> bool:
        """Begin a new exchange on a connection that has authenticated, at most once a second."""
        if self.state is not State.AUTHENTICATED or now - self._accepted < _REAUTHENTICATION_SECONDS:
            return False
        self.state = State.VERSIONS_KNOWN
        return True

    def handshake(self, mechanism: str, *, framed: bool) -> bool:
        """Take a mechanism; tokens follow. Return False if the listener does not offer it, or it is not the time."""
        if self.state not in (State.NEW, State.VERSIONS_KNOWN) or mechanism not in self.mechanisms:
            self.state = State.FAILED
            return False
        self.state, self.mechanism, self._framed = State.TOKENS, mechanism, framed
        self._scram, self._asked, self._login, self._refused = None, False, None, False
        if mechanism in SCRAM:
            kind = SCRAM[mechanism]
            self._scram = ScramExchange(kind, lambda user: self._find(kind, user), self._random(24))
        return True

    def authenticate(self, token: bytes, now: float) -> Outcome:
        """Take a token of the client."""
        if self.state is not State.TOKENS or self._login is not None or self._refused:
            return self._reject()
        if self.principal is not None and self.mechanism != self._first_mechanism:
            return self._reject()
        try:
            if self.mechanism == OAUTHBEARER:
                self._login = oauthbearer.parse(token)
                return self._login
            if self._scram is None:
                self._login = plain.parse(token)
                self.claimed = self._login.user
                return self._login
            if not self._asked:
                self._asked = True
                answer = self._scram.first(token)
                self.claimed = self._scram.user
                return Challenge(answer)
            signature = self._scram.final(token)
        except (ScramError, PlainError, OauthBearerError):
            return self._reject()
        return self._accept(Identity(Principal(name=self._scram.user), by_password=True), signature, now)

    def checked(self, identity: Identity | None, now: float) -> Challenge | Accepted | Rejected:
        """Take the result of the check of a `Login` or an `AccessToken`."""
        login = self._login
        if login is None or self.state is not State.TOKENS:
            return self._reject()
        if isinstance(login, AccessToken):
            if identity is None:
                self._login, self._refused = None, True
                return Challenge(REFUSAL)
            if login.authorization_id not in ("", identity.principal.name):
                return self._reject()
        if identity is None:
            return self._reject()
        return self._accept(identity, b"", now)

    def _accept(self, identity: Identity, token: bytes, now: float) -> Accepted | Rejected:
        if self.principal not in (None, identity.principal):
            return self._reject()
        self.state, self.principal, self._accepted = State.AUTHENTICATED, identity.principal, now
        self._first_mechanism, self._scram, self._login = self.mechanism, None, None
        return Accepted(identity, token)

    def _reject(self) -> Rejected:
        self.state, self._scram, self._login = State.FAILED, None, None
        return Rejected()
