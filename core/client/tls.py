"""The TLS of a client from Kafka's property names: authorities, a certificate of its own, the check of the host."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

TLS_NAMES = (
    "ssl.ca.location", "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates",
    "ssl.truststore.password", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)  # fmt: skip
_STORES = ("truststore", "keystore")


def context_of(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of the properties. Raises ValueError that names the property and the file."""
    _refuse_java_stores(properties)
    authorities = properties.get("ssl.ca.location") or properties.get("ssl.truststore.location") or None
    given = properties.get("ssl.truststore.certificates") or None
    try:
        context = ssl.create_default_context(cafile=authorities, cadata=given)
    except (OSError, ValueError) as error:
        where = authorities or "ssl.truststore.certificates"
        raise ValueError(f"The authorities in {where} cannot be read: {_why(error)}.") from None
    _check_names(properties, context)
    certificate = properties.get("ssl.certificate.location") or properties.get("ssl.keystore.location")
    key = properties.get("ssl.key.location") or None
    if key and not certificate:
        raise ValueError("ssl.key.location needs ssl.certificate.location, the certificate of that key.")
    if certificate:
        # With an empty password a key with one is an error; without any, OpenSSL would ask the terminal.
        password = properties.get("ssl.key.password", "")
        try:
            context.load_cert_chain(certificate, key, password=lambda: password)
        except (OSError, ValueError) as error:
            names = certificate if key is None else f"{certificate} and {key}"
            raise ValueError(
                f"The client's certificate in {names} cannot be used: {_why(error)}. It is PEM, and ssl.key.password "
                "is that of its key."
            ) from None
    return context


def _check_names(properties: Mapping[str, str], context: ssl.SSLContext) -> None:
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise ValueError(
            "ssl.endpoint.identification.algorithm must be https, or empty: then a certificate may name any host."
        )
    context.check_hostname = algorithm == "https"
    verify = properties.get("enable.ssl.certificate.verification", "true").strip().lower()
    if verify not in ("true", "false"):
        raise ValueError("enable.ssl.certificate.verification must be true or false.")
    if verify == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE


def _refuse_java_stores(properties: Mapping[str, str]) -> None:
    for store in _STORES:
        path, kind = properties.get(f"ssl.{store}.location", ""), properties.get(f"ssl.{store}.type", "")
        if kind.upper() not in ("", "PEM") or Path(path).suffix.lower() in (".jks", ".p12", ".pfx"):
            tool = "keytool -exportcert -rfc" if store == "truststore" else "openssl pkcs12 -nodes"
            raise ValueError(
                f"ssl.{store}.location must be a PEM file: Java's key stores are not read here. Convert it with "
                f"'{tool}'."
            )


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not PEM"
    return (error.strerror or "it cannot be opened") if isinstance(error, OSError) else "it is not PEM"
