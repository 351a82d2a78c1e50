"""Certificates of listeners: loaded, refused with what to do, loaded again; principals of clients."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme

from core.clock import ManualClock
from core.config import Config, TlsSettings
from core.errors import StartupError
from core.security.principal import ANONYMOUS, Principal
from core.security.tls import Certificates, ServerCertificate, UnmappedPrincipalError

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY_MS = 86_400_000


def clock() -> ManualClock:
    return ManualClock(int(NOW.timestamp() * 1000))


class Files:
    """A pair in two files, issued by an authority of its own."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.certificate, self.key = directory / "certificate.pem", directory / "key.pem"
        self.issue()

    def issue(self, days: int = 90) -> None:
        issued = self.ca.issue_cert("127.0.0.1", not_after=NOW + datetime.timedelta(days=days))
        self.write(issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())

    def write(self, certificate: bytes, key: bytes | None = None) -> None:
        replace_file(self.certificate, certificate)
        if key is not None:
            replace_file(self.key, key)
            self.key.chmod(0o600)

    def served(self, **settings: object) -> ServerCertificate:
        given = TlsSettings("default", self.certificate, self.key, **settings)  # type: ignore[arg-type]
        return ServerCertificate(given, Config(), clock())


def replace_file(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_context_has_tls_1_2_and_aead_alone(files: Files) -> None:
    served = files.served()
    served.load()
    for http in (True, False):
        context = served.context(http=http)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION and context.options & ssl.OP_NO_COMPRESSION
        assert {suite["aead"] for suite in context.get_ciphers()} == {True}  # type: ignore[typeddict-item]
        assert {suite["protocol"] for suite in context.get_ciphers()} == {"TLSv1.2", "TLSv1.3"}  # type: ignore[typeddict-item]
        assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_key_for_other_eyes_is_refused(files: Files, mode: int) -> None:
    files.key.chmod(mode)
    with pytest.raises(StartupError, match=f"mode 0{mode:o}.*chmod 600 {files.key}"):
        files.served().load()


def test_a_key_of_another_certificate_is_refused(files: Files) -> None:
    files.write(files.ca.issue_cert("other").cert_chain_pems[0].bytes())
    with pytest.raises(StartupError, match="does not belong to the certificate"):
        files.served().load()


def test_files_that_are_no_pem_are_refused(files: Files) -> None:
    key = files.key.read_bytes()
    files.write(b"hello")
    with pytest.raises(StartupError, match=r"certificate.pem is not a certificate in PEM"):
        files.served().load()
    files.issue()
    files.write(files.certificate.read_bytes(), b"hello")
    with pytest.raises(StartupError, match="cannot be read as PEM"):
        files.served().load()
    files.write(files.certificate.read_bytes(), key)
    files.key.unlink()
    with pytest.raises(StartupError, match=r"Cannot read .*key.pem: No such file"):
        files.served().load()


@pytest.mark.client("openssl")
def test_a_key_with_a_password_is_refused_and_not_asked_for(files: Files) -> None:
    closed = files.key.with_name("closed.pem")
    command = ["openssl", "pkey", "-in", files.key, "-aes128", "-passout", "pass:x", "-out", closed]
    subprocess.run(command, check=True, capture_output=True)
    files.write(files.certificate.read_bytes(), closed.read_bytes())
    with pytest.raises(StartupError, match=r"is encrypted.*openssl pkey"):
        files.served().load()


def test_rules_and_authorities_that_cannot_be_read_are_refused(files: Files, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="principal mapping rules of the certificate 'default': 'RULE:x'"):
        files.served(principal_mapping_rules="RULE:x").load()
    bad = tmp_path / "ca.pem"
    bad.write_text("hello")
    with pytest.raises(StartupError, match="authorities of clients"):
        files.served(client_ca=bad, client_auth="required").load()


def test_changed_files_are_used_by_the_next_handshake(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    served = files.served()
    served.load()
    before, fingerprint = served.context(http=False), served.fingerprint
    served.check()
    assert served.context(http=False) is before
    files.issue(days=300)
    with caplog.at_level(logging.INFO):
        served.check()
    assert served.context(http=False) is not before and served.fingerprint != fingerprint
    assert served.state == ("default", int(NOW.timestamp() * 1000) + 300 * DAY_MS, 2, 0)
    assert "was loaded; it is valid until 2026-10-28" in caplog.text


def break_by_key(files: Files) -> None:
    files.write(files.ca.issue_cert("other").cert_chain_pems[0].bytes())


def break_by_age(files: Files) -> None:
    files.issue(days=-1)


def break_by_mode(files: Files) -> None:
    files.issue()
    files.key.chmod(0o644)


def break_by_absence(files: Files) -> None:
    files.certificate.unlink()


@pytest.mark.parametrize("damage", [break_by_key, break_by_age, break_by_mode, break_by_absence])
def test_a_pair_that_cannot_be_used_leaves_the_former_one(
    files: Files, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    served = files.served()
    served.load()
    before, fingerprint = served.context(http=True), served.fingerprint
    damage(files)  # type: ignore[operator]
    for _ in range(3):
        served.check()
    assert served.context(http=True) is before and served.fingerprint == fingerprint
    assert served.state.loaded == 1 and served.state.refused >= 1
    assert "the former certificate stays in use" in caplog.text
    files.issue()
    served.check()
    assert served.context(http=True) is not before and served.state.loaded == 2


def test_a_refused_pair_is_reported_once_per_change(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    served = files.served()
    served.load()
    break_by_age(files)
    for _ in range(3):
        served.check()
    assert served.state.refused == 1 and caplog.text.count("has expired") == 1
    served.check(force=True)
    assert served.state.refused == 2


def test_a_certificate_that_has_expired_at_the_start_is_served_with_a_warning(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.issue(days=-1)
    served = files.served()
    served.load()
    assert "has expired on 2025-12-31" in caplog.text


def test_a_certificate_of_the_future_is_told(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    early = ManualClock(0)
    served = ServerCertificate(TlsSettings("default", files.certificate, files.key), Config(), early)
    served.load()
    assert "is valid from" in caplog.text


async def test_the_files_are_checked_as_long_as_the_broker_runs(files: Files) -> None:
    settings = TlsSettings("default", files.certificate, files.key)
    certificates = Certificates(Config(tls=(settings,), tls_check_interval_ms=1), clock())
    certificates.load()
    served = certificates.by_name()["default"]
    fingerprint = served.fingerprint
    certificates.start()
    try:
        files.issue(days=300)
        async with asyncio.timeout(30):
            while served.fingerprint == fingerprint:
                await asyncio.sleep(0.001)
    finally:
        certificates.stop()


# --- principals ---------------------------------------------------------------------------------------------------


class Transport(asyncio.BaseTransport):
    """A connection whose client has shown a certificate, or none."""

    def __init__(self, der: bytes | None) -> None:
        super().__init__({"ssl_object": self})
        self._der = der

    def getpeercert(self, binary_form: bool) -> bytes | None:
        assert binary_form
        return self._der


def der_of(**names: str) -> bytes:
    issued = trustme.CA().issue_cert("client@example.org", **names)
    return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())


def loaded(files: Files, rules: str) -> ServerCertificate:
    ca = files.key.with_name("ca.pem")
    files.ca.cert_pem.write_to_path(ca)
    served = files.served(client_ca=ca, client_auth="requested", principal_mapping_rules=rules)
    served.load()
    return served


def test_a_rule_makes_the_principal_of_a_certificate(files: Files) -> None:
    served = loaded(files, r"RULE:^CN=([^,\\]+),.*$/$1/L")
    der = der_of(common_name="Alice")
    assert served.principal(Transport(der)) == Principal("User", "alice")
    assert served.principal(Transport(None)) is ANONYMOUS


def test_a_certificate_without_a_rule_is_refused(files: Files) -> None:
    served = loaded(files, "RULE:^CN=bob$/bob/")
    with pytest.raises(
        UnmappedPrincipalError, match="no principal mapping rule holds for the subject 'CN=alice,"
    ):
        served.principal(Transport(der_of(common_name="alice")))


def test_a_session_does_not_outlive_the_certificate(files: Files) -> None:
    served = loaded(files, "DEFAULT")
    issued = trustme.CA().issue_cert("a@example.org", not_after=NOW - datetime.timedelta(days=1))
    der = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
    with pytest.raises(UnmappedPrincipalError, match="has expired"):
        served.principal(Transport(der))


def test_a_part_of_a_name_cannot_pretend_to_be_another(files: Files) -> None:
    served = loaded(files, r"RULE:^CN=([^,\\]+),OU=admin,.*$/$1/")
    with pytest.raises(UnmappedPrincipalError):
        served.principal(Transport(der_of(common_name="alice,OU=admin")))


def test_a_long_name_does_not_fill_the_log(files: Files) -> None:
    served = loaded(files, "RULE:^CN=bob$/bob/")
    with pytest.raises(UnmappedPrincipalError) as caught:
        served.principal(Transport(der_of(common_name="alice", organization_name="\n\x1b" * 30)))
    assert (
        "\n" not in str(caught.value) and "\x1b" not in str(caught.value) and len(str(caught.value)) < 2_500
    )
