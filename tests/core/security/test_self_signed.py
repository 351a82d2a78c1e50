"""The pair of `--tls auto`: made once, for all names, and again before it expires."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from core.clock import ManualClock
from core.config import Config, Endpoint, TlsSettings
from core.errors import StartupError
from core.security.certificates import facts_of, first_certificate
from core.security.self_signed import ensure, files_of, names_of, names_of_machine
from core.security.tls import ServerCertificate
from tests.broker_process import ROOT

DAY_MS = 86_400_000
NAMES = ["127.0.0.1", "::1", "localhost"]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return files_of(tmp_path, "default")


def read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_its_names_are_those_of_the_listeners() -> None:
    tls = (("tls", "default"),)
    config = Config(
        listeners=(
            Endpoint("http", "Broker.Example.Org", 1, tls),
            Endpoint("kafka", "10.0.0.1", 2, tls),
            Endpoint("kafka", "10.0.0.2", 2),
            Endpoint("kafka", "10.0.0.3", 2, (("tls", "other"),)),
        ),
        advertised=Endpoint("kafka", "outside.example.org", 9092),
        http_allowed_hosts=("web.example.org",),
    )
    assert names_of(config, "default") == [
        "10.0.0.1", "127.0.0.1", "::1", "broker.example.org", "localhost", "outside.example.org", "web.example.org",
    ]  # fmt: skip


def test_a_wildcard_gives_the_names_of_the_machine() -> None:
    config = Config(listeners=(Endpoint("http", "0.0.0.0", 1, (("tls", "default"),)),))
    assert socket.gethostname().lower() in names_of_machine(config, "default")
    assert names_of(config, "default") == NAMES


def test_listeners_of_one_address_have_no_other_names() -> None:
    config = Config(
        listeners=(Endpoint("http", "10.0.0.1", 1, (("tls", "default"),)), Endpoint("kafka", "0.0.0.0", 2))
    )
    assert names_of_machine(config, "default") == []


def test_another_name_of_the_machine_makes_no_new_one(pair: tuple[Path, Path]) -> None:
    """As a container has one at each start: clients keep a copy of the certificate."""
    ensure(*pair, NAMES, ManualClock(), ["first", "172.17.0.2"])
    before = pair[0].read_bytes()
    assert b"172.17.0.2" in before
    ensure(*pair, NAMES, ManualClock(), ["second", "172.17.0.3"])
    assert pair[0].read_bytes() == before


def test_both_files_are_for_their_owner_alone(pair: tuple[Path, Path]) -> None:
    ensure(*pair, NAMES, ManualClock())
    assert [file.stat().st_mode & 0o777 for file in pair] == [0o600, 0o600]


def test_a_client_that_is_strict_trusts_the_certificate(pair: tuple[Path, Path]) -> None:
    clock = ManualClock()
    ensure(*pair, NAMES, clock)
    made = read(pair[0])
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == set(NAMES)
    client = ssl.create_default_context(cafile=str(pair[0]))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*pair)
    assert made.public_key().curve.name == "secp256r1"  # type: ignore[union-attr]
    # A browser takes no more than 398 days.
    assert 396 <= (made.not_valid_after_utc - made.not_valid_before_utc).days <= 398


def test_it_is_kept_until_it_is_about_to_expire(pair: tuple[Path, Path]) -> None:
    clock = ManualClock()
    ensure(*pair, NAMES, clock)
    first, key = pair[0].read_bytes(), pair[1].read_bytes()
    left = facts_of(first_certificate(first.decode())).not_after_ms - clock.wall_ms()
    clock.advance((left - 31 * DAY_MS) / 1000)
    ensure(*pair, NAMES, clock)
    assert pair[0].read_bytes() == first
    clock.advance(2 * 86_400)
    ensure(*pair, NAMES, clock)
    assert pair[0].read_bytes() != first and pair[1].read_bytes() == key
    assert facts_of(first_certificate(pair[0].read_text())).not_after_ms > clock.wall_ms() + 390 * DAY_MS


def test_a_new_name_makes_a_new_one(pair: tuple[Path, Path]) -> None:
    ensure(*pair, NAMES, ManualClock())
    first = pair[0].read_bytes()
    ensure(*pair, NAMES[:1], ManualClock())
    assert pair[0].read_bytes() == first
    ensure(*pair, [*NAMES, "new.example.org"], ManualClock())
    assert "new.example.org" in str(
        read(pair[0]).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    )


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_or_torn_file_is_made_again(pair: tuple[Path, Path], missing: int) -> None:
    ensure(*pair, NAMES, ManualClock())
    if missing == 0:
        pair[0].write_bytes(pair[0].read_bytes()[:200])
    else:
        pair[1].unlink()
    ensure(*pair, NAMES, ManualClock())
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*pair)


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="Cannot write the certificate"):
        ensure(tmp_path / "no" / "a.pem", tmp_path / "no" / "a.key", NAMES, ManualClock())


def test_the_running_broker_renews_it(tmp_path: Path) -> None:
    clock = ManualClock()
    served = ServerCertificate(TlsSettings("default"), Config(data_dir=tmp_path), clock)
    served.load()
    first = served.fingerprint
    clock.advance(380 * 86_400)
    served.check()
    assert served.fingerprint != first and served.state.loaded == 2


def test_a_later_start_does_not_load_cryptography(tmp_path: Path) -> None:
    """Its import costs 20 MB, which a broker would keep for all its life."""
    ensure(*files_of(tmp_path, "default"), names_of(Config(), "default"), ManualClock(_now_ms()))
    code = (
        "import sys; from pathlib import Path; from core.clock import Clock; from core.config import *; "
        "from core.security.tls import Certificates; "
        f"config = Config(data_dir=Path({str(tmp_path)!r}), tls=(TlsSettings('default'),)); "
        "Certificates(config, Clock()).load(); print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def _now_ms() -> int:
    from core.clock import Clock

    return Clock().wall_ms()
