"""Read the subject and the validity of an X.509 certificate, and write its subject as Kafka does.

The ssl module shows the subject of a client's certificate without the types of its texts, and the validity of a
server's own certificate not at all. The certificates read here have passed OpenSSL's own decoder. Source: RFC 5280,
section 4.1; RFC 4514, and RFC 2253 in the form of Java's `X500Principal.getName`, which is the one in Kafka's ACLs.
"""

from __future__ import annotations

import re
import ssl
from calendar import timegm
from collections.abc import Iterator
from typing import NamedTuple

_SEQUENCE, _VERSION = 0x30, 0xA0
_UTC_TIME = 0x17
# How the text types of ASN.1 are encoded. T61String is Latin-1 in practice, as in OpenSSL.
_TEXTS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "latin-1",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
# The names of RFC 2253, section 2.3, by the bytes of the object identifier.
_NAMES = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640101"): "UID",
    bytes.fromhex("0992268993f22c640119"): "DC",
}
_ESCAPED = re.compile(r'[,=+<>#;"\\]')
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class CertificateError(ValueError):
    """These bytes are not a certificate that can be read."""


class Facts(NamedTuple):
    """What is read from a certificate: its subject as in Kafka's ACLs, and its validity in ms since the epoch."""

    subject: str
    not_before_ms: int
    not_after_ms: int


class _Value(NamedTuple):
    """One value of DER: its tag, its content, and the whole of it."""

    tag: int
    content: bytes
    whole: bytes


def facts_of(der: bytes) -> Facts:
    """Return what a certificate in DER says. Raises CertificateError."""
    try:
        signed = _only(der, _SEQUENCE)
        fields = _values(next(_values(signed)).content)
        first = next(fields)
        if first.tag == _VERSION:
            next(fields)  # the serial number, which comes first where there is no version
        next(fields)  # the algorithm of the signature
        next(fields)  # the issuer
        not_before, not_after = _values(next(fields).content)
        subject = next(fields)
        if subject.tag != _SEQUENCE:
            raise CertificateError("the subject is missing")
        return Facts(distinguished_name(subject.content), _time_ms(not_before), _time_ms(not_after))
    except (ValueError, IndexError, StopIteration) as error:
        raise CertificateError(f"the certificate cannot be read: {error}") from None


def first_certificate(pem: str) -> bytes:
    """Return the first certificate of a PEM file in DER: the server's own. Raises CertificateError."""
    found = _PEM.search(pem)
    if found is None:
        raise CertificateError("there is no BEGIN CERTIFICATE line in it")
    try:
        return ssl.PEM_cert_to_DER_cert(found[0])
    except ValueError as error:
        raise CertificateError(str(error)) from None


def distinguished_name(content: bytes) -> str:
    """Return a name as text, its last part first; `content` is that of the SEQUENCE of its parts.

    Types without a name in RFC 2253, and values that are no text, are written as `#` and their DER in hex. Characters
    with a meaning are escaped, so that a part can never look like two. Raises ValueError.
    """
    parts = []
    for part in _values(content):
        pairs = []
        for pair in _values(part.content):
            kind, value = _values(pair.content)
            pairs.append(_pair(kind.content, value))
        parts.append("+".join(pairs))
    return ",".join(reversed(parts))


def _pair(kind: bytes, value: _Value) -> str:
    name = _NAMES.get(kind)
    if name is None or value.tag not in _TEXTS:
        return f"{name or _dotted(kind)}=#{value.whole.hex()}"
    return f"{name}={escape(value.content.decode(_TEXTS[value.tag]))}"


def escape(text: str) -> str:
    """Return the value of one part, with what could end it escaped."""
    stripped = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    before, after = text[:lead], text[lead + len(stripped) :]
    escaped = _ESCAPED.sub(r"\\\g<0>", stripped).replace("\0", "\\00")
    return "".join(f"\\{c}" for c in before) + escaped + "".join(f"\\{c}" for c in after)


def _dotted(kind: bytes) -> str:
    """Return an object identifier in dotted form (X.690, section 8.19)."""
    numbers, number = [], 0
    for byte in kind:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time_ms(value: _Value) -> int:
    """Return a UTCTime or GeneralizedTime, both of which end in Z, in ms since the epoch."""
    text = value.content.decode("ascii")
    if value.tag == _UTC_TIME:
        # RFC 5280, section 4.1.2.5.1: two digits below 50 are of this century.
        text = ("20" if text[:2] < "50" else "19") + text
    if re.fullmatch(r"\d{14}Z", text) is None:
        raise CertificateError(f"the time {text!r} is not as RFC 5280 has it")
    numbers = (text[:4], text[4:6], text[6:8], text[8:10], text[10:12], text[12:14])
    return timegm((*map(int, numbers), 0, 1, 0)) * 1000


def _only(data: bytes, tag: int) -> bytes:
    found = next(_values(data))
    if found.tag != tag:
        raise CertificateError(f"it begins with the tag {found.tag:#x}")
    return found.content


def _values(data: bytes) -> Iterator[_Value]:
    """Yield the values that follow one another in DER."""
    position = 0
    while position < len(data):
        start = position
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count])
            position += count
        end = position + length
        if tag & 0x1F == 0x1F or end > len(data):
            raise CertificateError("a value is longer than what it is in")
        yield _Value(tag, data[position:end], data[start:end])
        position = end
