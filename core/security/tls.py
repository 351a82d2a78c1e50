"""The certificates of listeners: TLS contexts, their renewal while the broker runs, and the clients' principals.

A new pair is loaded into contexts of its own. Only if all of it is right do new handshakes use it; open connections
stay as they are. Session tickets belong to a context, so no session outlives the pair, or the authorities of clients,
with which it began.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, NoReturn

from core.clock import Clock, datetime_of
from core.config import Config, TlsSettings
from core.errors import StartupError
from core.security.certificates import CertificateError, Facts, facts_of, first_certificate
from core.security.mapping_rules import MappingError, MappingRules
from core.security.principal import ANONYMOUS, Principal
from core.security.private_files import is_private
from core.security.self_signed import ensure, files_of, names_of, names_of_machine

log = logging.getLogger(__name__)

# TLS 1.2 with forward secrecy and an AEAD; all suites of TLS 1.3 have both.
_SUITES_OF_TLS_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
_OPTIONS = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# What a browser or an HTTP client asks for; a Kafka listener has no such protocol.
_HTTP = ("http/1.1",)
_MAX_NAME_IN_LOG = 500


class Handshake(ssl.SSLObject):
    """A TLS connection that keeps the alert of a handshake that fails: event loops drop it."""

    outgoing: ssl.MemoryBIO
    alert = b""

    def do_handshake(self) -> None:
        """See `ssl.SSLObject.do_handshake`."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.alert = self.outgoing.read()
            raise


# Where a context leaves the connections that it makes, for the code that makes the handshake.
HANDSHAKES: ContextVar[list[Handshake]] = ContextVar("handshakes")


class ServerContext(ssl.SSLContext):
    """A context whose connections are `Handshake`, to be found in `HANDSHAKES`."""

    sslobject_class = Handshake

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See `ssl.SSLContext.wrap_bio`."""
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, Handshake)
        made.outgoing = outgoing
        if (found := HANDSHAKES.get(None)) is not None:
            found.append(made)
        return made


class UnmappedPrincipalError(Exception):
    """The certificate of a client gives no principal: the connection is refused."""


class _Stamp(NamedTuple):
    """By what a change of a file is noticed: times alone have missed replaced files."""

    inode: int
    size: int
    modified_ns: int


class Pair(NamedTuple):
    """A certificate that was loaded: contexts for HTTP and for other listeners, and what it says."""

    http: ssl.SSLContext
    other: ssl.SSLContext
    facts: Facts
    fingerprint: str
    stamps: Sequence[_Stamp]


class CertificateState(NamedTuple):
    """A certificate for the metrics: its end in ms since the epoch, and how often it was loaded or refused."""

    name: str
    not_after_ms: int
    loaded: int
    refused: int


class ServerCertificate:
    """One certificate of the settings: what new handshakes use."""

    def __init__(self, settings: TlsSettings, config: Config, clock: Clock) -> None:
        self.name = settings.name
        # Whether the broker makes the pair itself, and for which names.
        self.own = settings.certificate is None
        self._names = names_of(config, settings.name) if self.own else []
        self._more = names_of_machine(config, settings.name) if self.own else []
        certificate, key = files_of(config.data_dir, settings.name)
        if settings.certificate is not None:
            certificate, key = settings.certificate, settings.key or settings.certificate
        self.file = certificate
        self._settings = settings
        self._key = key
        self._clock = clock
        self._rules = MappingRules("DEFAULT")
        self._pair: Pair | None = None
        self._loaded = 0
        self._refused = 0
        # The files of the last pair that was refused: it is reported once.
        self._refused_stamps: Sequence[_Stamp] = ()

    # --- loading -------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the files at the start of the broker. Raises StartupError with what to do."""
        try:
            self._rules = MappingRules(self._settings.principal_mapping_rules)
        except MappingError as error:
            raise StartupError(
                f"The principal mapping rules of the certificate {self.name!r}: {error}."
            ) from None
        if self.own:
            ensure(self.file, self._key, self._names, self._clock, self._more)
        pair = self._pair = self._load()
        self._loaded += 1
        if problem := self._validity_problem(pair.facts):
            log.warning("the certificate %s %s; clients will refuse it", self.file, problem)

    def check(self, *, force: bool = False) -> None:
        """Load the files again if they have changed. A pair that cannot be used leaves the former one in use."""
        former = self._pair
        assert former is not None, "load() comes first"
        try:
            if self.own:
                ensure(self.file, self._key, self._names, self._clock, self._more)
            stamps = self._stamps()
            if not force and stamps in (former.stamps, self._refused_stamps):
                return
            pair = self._load()
            if problem := self._validity_problem(pair.facts):
                raise StartupError(f"The certificate {self.file} {problem}.")
        except StartupError as error:
            self._refuse(str(error))
            return
        self._pair = pair
        self._loaded += 1
        self._refused_stamps = ()
        log.info(
            "the certificate %s was loaded; it is valid until %s", self.file, _day(pair.facts.not_after_ms)
        )

    def _refuse(self, reason: str) -> None:
        self._refused += 1
        try:
            self._refused_stamps = self._stamps()
        except StartupError:
            self._refused_stamps = ()
        log.error("the former certificate stays in use: %s", reason)

    def _load(self) -> Pair:
        stamps = self._stamps()
        _check_private(self._key)
        try:
            der = first_certificate(self.file.read_text(errors="replace"))
            facts = facts_of(der)
        except CertificateError as error:
            raise StartupError(f"{self.file} is not a certificate in PEM: {error}.") from None
        contexts = [self._context(protocols) for protocols in (_HTTP, ())]
        return Pair(contexts[0], contexts[1], facts, hashlib.sha256(der).hexdigest(), stamps)

    def _context(self, protocols: Sequence[str]) -> ssl.SSLContext:
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_SUITES_OF_TLS_1_2)
        context.options |= _OPTIONS
        if protocols:
            context.set_alpn_protocols(protocols)
        try:
            context.load_cert_chain(self.file, self._key, password=self._refuse_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise StartupError(
                    f"The key {self._key} does not belong to the certificate {self.file}."
                ) from None
            raise StartupError(
                f"The certificate {self.file} and the key {self._key} cannot be read as PEM ({error.reason})."
            ) from None
        self._ask_clients(context)
        return context

    def _ask_clients(self, context: ssl.SSLContext) -> None:
        settings = self._settings
        context.verify_mode = _CLIENT_AUTH[settings.client_auth]
        if settings.client_ca is None:
            return
        try:
            context.load_verify_locations(settings.client_ca)
        except ssl.SSLError as error:
            raise StartupError(
                f"The authorities of clients in {settings.client_ca} cannot be read as PEM ({error.reason})."
            ) from None
        # The certificate of a resumed session would not be checked again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0

    def _refuse_password(self) -> NoReturn:
        raise StartupError(
            f"The key {self._key} is encrypted, and there is no terminal to ask for its password. Write it without "
            f"one, as a file that its owner alone can read: openssl pkey -in {self._key} -out FILE; chmod 600 FILE."
        )

    def _stamps(self) -> list[_Stamp]:
        files = [self.file, self._key]
        if self._settings.client_ca is not None:
            files.append(self._settings.client_ca)
        stamps = []
        for file in files:
            try:
                found = file.stat()
                if not os.access(file, os.R_OK):
                    raise PermissionError(0, "Permission denied")
            except OSError as error:
                raise StartupError(f"Cannot read {file}: {error.strerror}.") from None
            stamps.append(_Stamp(found.st_ino, found.st_size, found.st_mtime_ns))
        return stamps

    def _validity_problem(self, facts: Facts) -> str:
        now = self._clock.wall_ms()
        if now >= facts.not_after_ms:
            return f"has expired on {_day(facts.not_after_ms)}"
        if now < facts.not_before_ms:
            return f"is valid from {_day(facts.not_before_ms)} on"
        return ""

    # --- use -----------------------------------------------------------------------------------------------

    def context(self, *, http: bool) -> ssl.SSLContext:
        """Return the context for the next handshake. Another one may be returned for the one after."""
        assert self._pair is not None, "load() comes first"
        return self._pair.http if http else self._pair.other

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the certificate, in hex."""
        assert self._pair is not None, "load() comes first"
        return self._pair.fingerprint

    @property
    def state(self) -> CertificateState:
        """Return the state for the metrics."""
        not_after_ms = self._pair.facts.not_after_ms if self._pair is not None else 0
        return CertificateState(self.name, not_after_ms, self._loaded, self._refused)

    def principal(self, transport: asyncio.BaseTransport) -> Principal:
        """Return the principal of the client of a connection: ANONYMOUS if it has shown no certificate.

        Raises UnmappedPrincipalError.
        """
        peer = transport.get_extra_info("ssl_object")
        der = None if self._settings.client_auth == "none" else peer.getpeercert(binary_form=True)
        if der is None:
            return ANONYMOUS
        try:
            subject, _, not_after_ms = facts_of(der)
        except CertificateError as error:
            raise UnmappedPrincipalError(f"its certificate cannot be read: {error}") from None
        if self._clock.wall_ms() >= not_after_ms:
            # A handshake would have found it; a session of TLS 1.2 that is resumed by its id has none.
            raise UnmappedPrincipalError("its certificate has expired since its session began")
        principal = self._rules.principal(subject) if subject else None
        if principal is None:
            raise UnmappedPrincipalError(
                f"no principal mapping rule holds for the subject {subject[:_MAX_NAME_IN_LOG]!r} of its certificate"
            )
        return principal


class Certificates:
    """All certificates of a broker, by name; looks at their files as long as it runs."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._interval = config.tls_check_interval_ms / 1000
        self._clock = clock
        self._config = config
        self._served: dict[str, ServerCertificate] = {}
        self._timer: asyncio.TimerHandle | None = None

    def load(self) -> None:
        """Load all of them. Raises StartupError."""
        for settings in self._config.tls:
            served = ServerCertificate(settings, self._config, self._clock)
            served.load()
            self._served[settings.name] = served

    def start(self) -> None:
        """Look at the files from now on."""
        if self._served:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def stop(self) -> None:
        """Look no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reload(self) -> None:
        """Load all files again now."""
        for served in self._served.values():
            served.check(force=True)

    def by_name(self) -> Mapping[str, ServerCertificate]:
        """Return the certificates that are loaded."""
        return self._served

    def _look(self) -> None:
        for served in self._served.values():
            served.check()
        self.start()


def _check_private(key: Path) -> None:
    status = key.stat()
    if not is_private(status):
        mode = stat.S_IMODE(status.st_mode)
        raise StartupError(
            f"Other users can read or write the private key {key} (mode {mode:04o}). Run: chmod 600 {key}"
        )


def _day(ms: int) -> str:
    return datetime_of(ms).strftime("%Y-%m-%d %H:%M UTC")
