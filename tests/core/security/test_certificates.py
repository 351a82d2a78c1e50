"""Subjects of certificates as text, and their validity."""

from __future__ import annotations

import datetime

import pytest
import trustme
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from core.security.certificates import (
    CertificateError,
    distinguished_name,
    escape,
    facts_of,
    first_certificate,
)

OU, CN = NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME
one = x509.NameAttribute


def content_of(name: x509.Name) -> bytes:
    """The parts of a name in DER, without the SEQUENCE around them; these names are short."""
    der = name.public_bytes()
    return der[2:] if der[1] < 0x80 else der[3:]


# What Java's X500Principal.getName() gives for the same bytes, recorded from OpenJDK 17.
AS_JAVA = [
    (
        [
            one(NameOID.COUNTRY_NAME, "DE"),
            one(NameOID.STATE_OR_PROVINCE_NAME, "BE"),
            one(NameOID.LOCALITY_NAME, "Berlin"),
            one(NameOID.ORGANIZATION_NAME, "Ä Öl"),
            one(OU, "a, b=c+d"),
            one(CN, "alice,OU=admin"),
        ],
        r"CN=alice\,OU\=admin,OU=a\, b\=c\+d,O=Ä Öl,L=Berlin,ST=BE,C=DE",
    ),
    (
        [
            one(CN, " #lead and trail  "),
            one(NameOID.EMAIL_ADDRESS, "a@b.c"),
            one(NameOID.SERIAL_NUMBER, "12"),
        ],
        r"2.5.4.5=#13023132,1.2.840.113549.1.9.1=#16056140622e63,CN=\ \#lead and trail\ \ ",
    ),
    ([one(NameOID.DOMAIN_COMPONENT, "org"), one(NameOID.USER_ID, "u")], "UID=u,DC=org"),
    ([one(NameOID.STREET_ADDRESS, 's;<>"\\#')], r"STREET=s\;\<\>\"\\\#"),
    ([one(CN, "nul\0x"), one(CN, "second")], r"CN=second,CN=nul\00x"),
    (
        [one(ObjectIdentifier("1.3.6.1.4.1.99999.1"), "own"), one(ObjectIdentifier("2.999.3"), "own")],
        "2.999.3=#0c036f776e,1.3.6.1.4.1.99999.1=#0c036f776e",
    ),
    ([one(CN, "t61", _type=_ASN1Type.T61String)], "CN=t61"),
    ([one(CN, "   ")], r"CN=\ \ \ "),
    ([], ""),
]


@pytest.mark.parametrize(("parts", "text"), AS_JAVA, ids=[text for _, text in AS_JAVA])
def test_a_subject_is_written_as_kafka_writes_it(parts: list[x509.NameAttribute], text: str) -> None:
    assert distinguished_name(content_of(x509.Name(parts))) == text


def test_a_text_in_utf_16_is_read_as_such() -> None:
    """Java takes its bytes for UTF-8 and writes a zero after each letter."""
    name = x509.Name([one(CN, "bmp é", _type=_ASN1Type.BMPString)])
    assert distinguished_name(content_of(name)) == "CN=bmp é"


def test_a_part_with_two_values_keeps_both() -> None:
    name = x509.Name([x509.RelativeDistinguishedName([one(CN, "a"), one(NameOID.USER_ID, "u")])])
    assert distinguished_name(content_of(name)) == "CN=a+UID=u"


@given(st.text(max_size=40))
def test_no_text_of_one_part_looks_like_two(text: str) -> None:
    escaped = escape(text)
    unescaped, rest = "", escaped
    while rest:
        if rest[0] == "\\":
            unescaped, rest = (
                (unescaped + "\0", rest[3:]) if rest[1:3] == "00" else (unescaped + rest[1], rest[2:])
            )
        else:
            assert rest[0] not in ',+<>;="#'
            unescaped, rest = unescaped + rest[0], rest[1:]
    assert unescaped == text


def test_the_facts_of_a_certificate() -> None:
    until = datetime.datetime(2051, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    issued = trustme.CA().issue_cert(
        "example.org", common_name="server", organization_name="Org", not_after=until
    )
    pem = issued.cert_chain_pems[0].bytes().decode()
    facts = facts_of(first_certificate(f"Some text\n{pem}"))
    assert facts.subject.startswith("CN=server,") and facts.subject.endswith(",O=Org")
    assert facts.not_after_ms == until.timestamp() * 1000
    # UTCTime and its century: https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5.1
    assert facts.not_before_ms == datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC).timestamp() * 1000


def test_a_file_without_a_certificate_is_refused() -> None:
    with pytest.raises(CertificateError, match="BEGIN CERTIFICATE"):
        first_certificate("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(CertificateError):
        first_certificate("-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n")


@given(st.binary(max_size=60))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(CertificateError):
        facts_of(data)


def test_a_certificate_that_is_cut_is_refused() -> None:
    der = first_certificate(trustme.CA().issue_cert("a").cert_chain_pems[0].bytes().decode())
    facts_of(der)
    for end in range(len(der)):
        with pytest.raises(CertificateError):
            facts_of(der[:end])
