"""The setting `tls`: one certificate by a flag, several by name, and what listeners need of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import load, load_with_file
from core.config import Config, Endpoint, TlsSettings
from core.errors import StartupError

TLS = (("tls", "default"),)


def test_the_default_listeners_have_tls_if_there_is_a_certificate() -> None:
    config = load({}, tls="auto")
    assert config.tls == (TlsSettings("default"),)
    assert config.listeners == (
        Endpoint("http", "127.0.0.1", 8082, TLS),
        Endpoint("kafka", "127.0.0.1", 9092, TLS),
    )


@pytest.mark.parametrize(
    ("text", "certificate", "key"),
    [
        ("a.pem,b.pem", "a.pem", "b.pem"),
        (" a.pem , b.pem", "a.pem", "b.pem"),
        ("both.pem", "both.pem", "both.pem"),
    ],
)
def test_a_pair_is_two_files_or_one(text: str, certificate: str, key: str) -> None:
    assert load({"SLUICE_TLS": text}).tls == (TlsSettings("default", Path(certificate), Path(key)),)


def test_listeners_that_are_given_say_it_themselves() -> None:
    config = load({}, tls="auto", listeners=("http://127.0.0.1:1", "kafka://127.0.0.1:2?tls"))
    assert [one.tls for one in config.listeners] == ["", "default"]


@pytest.mark.parametrize(
    ("listener", "tls", "said"),
    [
        ("https://127.0.0.1:1", None, "needs the certificate 'default', which is not set: add --tls auto"),
        ("kafka://127.0.0.1:1?tls=other", "auto", "needs the certificate 'other'"),
        ("http://127.0.0.1:1", "auto", "no listener has TLS: write --listener https://"),
        ("https://127.0.0.1:1", "a,b,c", "SLUICE_TLS must be auto, or CERTIFICATE.pem,KEY.pem"),
        ("https://127.0.0.1:1", "a,", "SLUICE_TLS must be auto"),
        ("https://127.0.0.1:1", "{", "not JSON"),
        ("https://127.0.0.1:1", '{"default": {}}', "needs certificate ="),
        ("https://127.0.0.1:1", '{"default": {"certificate": "auto", "key": "k"}}', "needs certificate ="),
        ("https://127.0.0.1:1", '{"a/b": {"certificate": "auto"}}', "must be a table"),
        ("https://127.0.0.1:1", '{"default": {"certificat": "x"}}', "Did you mean certificate?"),
        ("https://127.0.0.1:1", '{"default": {"certificate": 1}}', "certificate must be a string"),
        (
            "https://127.0.0.1:1",
            '{"default": {"certificate": "auto", "client_auth": "maybe"}}',
            "client_auth must be",
        ),
        (
            "https://127.0.0.1:1",
            '{"default": {"certificate": "auto", "client_auth": "required"}}',
            "needs client_ca",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(listener: str, tls: str | None, said: str) -> None:
    with pytest.raises(StartupError) as caught:
        load({}, tls=tls, listeners=(listener,))
    assert said in str(caught.value)


def test_the_file_has_certificates_by_name(tmp_path: Path) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text(
        'listeners = ["https://127.0.0.1:1", "kafka://127.0.0.1:2?tls=inside"]\n'
        '[tls.default]\ncertificate = "a.pem"\nkey = "a.key"\n'
        '[tls.inside]\ncertificate = "auto"\nclient_ca = "ca.pem"\n'
        'principal_mapping_rules = ["RULE:^CN=(.*)$/$1/L", "DEFAULT"]\n'
    )
    assert load_with_file({}, file).tls == (
        TlsSettings("default", Path("a.pem"), Path("a.key")),
        TlsSettings("inside", None, None, Path("ca.pem"), "required", "RULE:^CN=(.*)$/$1/L,DEFAULT"),
    )


@pytest.mark.parametrize(
    "text", ['tls = "auto"', 'tls = ["a.pem", "b.pem"]', '[tls]\ncertificate = "a.pem"\nkey = "b.pem"']
)
def test_the_file_has_one_certificate_in_one_line_or_table(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text(text)
    assert [one.name for one in load_with_file({}, file).tls] == ["default"]


def test_an_error_of_the_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text('[tls.default]\nkey = "a"')
    with pytest.raises(StartupError, match=r"sluice\.toml: tls: the certificate 'default' needs certificate"):
        load_with_file({}, file)


def test_a_listener_may_be_reached_if_its_clients_show_certificates() -> None:
    required = '{"default": {"certificate": "auto", "client_ca": "ca.pem"}}'
    assert load({}, tls=required, listeners=("https://0.0.0.0:1",)).listeners[0].host == "0.0.0.0"
    for tls in ("auto", required.replace('"ca.pem"', '"ca.pem", "client_auth": "requested"')):
        with pytest.raises(StartupError, match="--insecure"):
            load({}, tls=tls, listeners=("https://0.0.0.0:1",))
    with pytest.raises(StartupError, match="--insecure"):
        load({}, tls=required, listeners=("https://127.0.0.1:1", "kafka://0.0.0.0:2"))


def test_without_a_certificate_nothing_has_tls() -> None:
    assert load({}).listeners == Config().listeners
