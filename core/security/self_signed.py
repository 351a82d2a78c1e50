"""Make the self-signed certificate of `--tls auto`, and a new one before it expires.

The key is made once and kept, so that clients which trust the key notice no renewal. The first line of the
certificate's file has the names that it is for: a start reads them without the cryptography package, whose import
costs 20 MB of memory.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.clock import Clock, datetime_of
from core.config import Config
from core.errors import StartupError
from core.security.certificates import CertificateError, facts_of, first_certificate

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

log = logging.getLogger(__name__)

# Browsers take no certificate of a longer validity.
_DAYS = 397
_RENEWED_DAYS_BEFORE = 30
_DAY_MS = 86_400_000
_MARK = "Made by Sluice for: "
_WILDCARDS = ("0.0.0.0", "::", "")
_COMMON_NAME = "Sluice"
_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def files_of(data_dir: Path, name: str) -> tuple[Path, Path]:
    """Return the files of a certificate that the broker makes, and of its key."""
    return data_dir / f"tls-{name}.pem", data_dir / f"tls-{name}.key"


def names_of(config: Config, name: str) -> list[str]:
    """Return the host names and addresses that the settings give to the listeners of a certificate, sorted."""
    names = {"localhost", "127.0.0.1", "::1", *config.http_allowed_hosts}
    for endpoint in config.listeners:
        if endpoint.tls == name:
            names |= set() if endpoint.host in _WILDCARDS else {endpoint.host}
            if endpoint.advertised is not None:
                names.add(endpoint.advertised.host)
    if config.advertised is not None:
        names.add(config.advertised.host)
    return _sorted(names)


def names_of_machine(config: Config, name: str) -> list[str]:
    """Return the name and the addresses of this machine, as far as it knows them, if listeners have them all."""
    if not any(endpoint.tls == name and endpoint.host in _WILDCARDS for endpoint in config.listeners):
        return []
    machine = socket.gethostname()
    try:
        found = socket.getaddrinfo(machine, None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return _sorted({machine, *(str(info[4][0]) for info in found)})


def _sorted(names: set[str]) -> list[str]:
    return sorted({one.lower().partition("%")[0] for one in names})


def ensure(
    certificate: Path, key: Path, names: Sequence[str], clock: Clock, more: Sequence[str] = ()
) -> None:
    """Make a certificate for all of `names`, unless there is one that does not expire soon. Raises StartupError.

    A new one is for `more` as well. That they change does not make a new one: a container has another name and
    another address at each start, and clients that have a copy of the certificate would no longer trust the broker.
    """
    if _is_good(certificate, key, names, clock):
        return
    names = sorted({*names, *more})
    try:
        _make(certificate, key, names, clock)
    except OSError as error:
        raise StartupError(f"Cannot write the certificate {certificate}: {error.strerror}.") from None
    log.info("made the self-signed certificate %s for %s", certificate, ", ".join(names))


def _is_good(certificate: Path, key: Path, names: Sequence[str], clock: Clock) -> bool:
    try:
        text = certificate.read_text(errors="replace")
        facts = facts_of(first_certificate(text))
    except (OSError, CertificateError):
        return False
    first, _, _ = text.partition("\n")
    known = first.removeprefix(_MARK).split(", ") if first.startswith(_MARK) else []
    left = facts.not_after_ms - clock.wall_ms()
    return key.is_file() and set(names) <= set(known) and left > _RENEWED_DAYS_BEFORE * _DAY_MS


def _make(certificate: Path, key: Path, names: Sequence[str], clock: Clock) -> None:
    # Imported here: see the first lines of this file.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if key.is_file():
        secret = serialization.load_pem_private_key(key.read_bytes(), None)
        if not isinstance(secret, ec.EllipticCurvePrivateKey):
            raise StartupError(f"{key} is not a key that Sluice has made. Remove it, and start again.")
    else:
        secret = ec.generate_private_key(ec.SECP256R1())
        pem = secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write(key, pem)
    now_ms = clock.wall_ms()
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, _COMMON_NAME)])
    public = secret.public_key()
    usage = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # Clients with a slow clock must accept it, too.
        .not_valid_before(datetime_of(now_ms - _DAY_MS))
        .not_valid_after(datetime_of(now_ms + (_DAYS - 1) * _DAY_MS))
        .add_extension(x509.SubjectAlternativeName([_general_name(one) for one in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    pem = builder.sign(secret, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    _write(certificate, f"{_MARK}{', '.join(names)}\n".encode() + pem)


def _general_name(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.encode("idna").decode())


def _write(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read; readers see the old one or the new."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode=0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
