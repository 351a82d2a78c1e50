"""Where a webhook may connect: the rules against requests to the inside of a network (SSRF).

A name is resolved once for a connection. Every address that it has is checked, and the connection is made to a
checked address, so a name that changes between check and connection changes nothing. Without a word of the operator
(`webhook_allow`) an endpoint is on the public internet and has TLS.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from core.errors import BrokerError, ErrorCode
from core.vocabulary.webhooks import MAX_URL

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Addresses beyond the private ones by which clouds give credentials to their machines: Azure's is public.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254")
)
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
# What translates IPv4 into IPv6 and leads to an IPv4 address again (RFC 6052, RFC 3056, RFC 4291).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SIX_TO_FOUR = ipaddress.ip_network("2002::/16")
_V4_COMPATIBLE = ipaddress.ip_network("::/96")
# Kinds of addresses that `ipaddress` takes for global, or did in earlier versions of Python.
_DENIED = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this network"),
        ("100.64.0.0/10", "a carrier's shared network"),
        ("192.0.0.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("198.18.0.0/15", "for benchmarks"),
        ("240.0.0.0/4", "reserved"),
        ("64:ff9b:1::/48", "a local translation to IPv4"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
        ("5f00::/16", "reserved"),
        ("fc00::/7", "private"),
        ("fec0::/10", "private"),
    )
)
_HOST = re.compile(r"[a-z0-9._-]{1,253}\Z")
# Characters of a path and a query that need no escape (RFC 3986).
_PATH = re.compile(r"[!-~]*\Z")


class Target(NamedTuple):
    """What a URL names. `host` is lower case and ASCII, without brackets; `path` has the query."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Return the value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Return the URL without its path, which may hold a secret: what logs and messages have."""
        return f"{'https' if self.secure else 'http'}://{self.authority}"


class RefusedAddressError(Exception):
    """The endpoint has an address to which webhooks do not connect. The text gives the reason."""


def parse_url(url: str) -> Target:
    """Return the parts of the URL of an endpoint. Raises INVALID_REQUEST."""
    if len(url) > MAX_URL:
        raise _invalid(f"A URL has {MAX_URL:,} characters at most.")
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").rstrip(".")
    except ValueError:
        raise _invalid("The URL of a webhook cannot be read: use https://host/path.") from None
    if parts.scheme not in ("https", "http"):
        raise _invalid("The URL of a webhook begins with https:// (or http://, to hosts of `webhook_allow`).")
    if "@" in parts.netloc:
        raise _invalid("The URL of a webhook holds no user and no password; use a header.")
    if parts.fragment or "#" in url:
        raise _invalid("The URL of a webhook has no fragment (#): it would not be sent.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # `urlsplit` drops line ends and tabs in silence.
    if not _PATH.match(path) or not _PATH.match(url.partition("://")[2].partition("/")[2]):
        raise _invalid("Percent-encode what is not ASCII in the URL of a webhook, and blanks.")
    secure = parts.scheme == "https"
    if port is None:
        port = 443 if secure else 80
    if port not in (80, 443) and not 1024 <= port <= 65_535:
        raise _invalid(f"A webhook connects to port 80, 443 or 1024 and above, not to {port}.")
    return Target(secure, _host(host), port, path)


def _host(host: str) -> str:
    if ":" in host:
        try:
            # No zone: it names an interface of this machine.
            return str(ipaddress.IPv6Address(host if "%" not in host else ""))
        except ValueError:
            raise _invalid("The URL of a webhook has an IPv6 address that cannot be read.") from None
    try:
        name = host.encode("ascii").decode() if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise _invalid("The host in the URL of a webhook is no name of the internet.") from None
    if not _HOST.match(name):
        raise _invalid("The URL of a webhook needs a host: https://host/path.")
    return name


class AllowList:
    """The setting `webhook_allow`: networks (`10.1.0.0/16`), addresses, host names, or `*.example.org`."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in entries:
            text = entry.strip().lower()
            try:
                self._networks.append(ipaddress.ip_network(text))
            except ValueError:
                if "/" in text or ":" in text or not _HOST.match(text.removeprefix("*.")):
                    raise ValueError(
                        f"{entry!r} is no network (10.1.0.0/16), address, host name or *.domain"
                    ) from None
                self._hosts.add(text)

    def __bool__(self) -> bool:
        return bool(self._networks or self._hosts)

    def has_host(self, host: str) -> bool:
        """Return whether a host is allowed by its name, or as an address."""
        if host in self._hosts:
            return True
        labels = host.split(".")
        if any(f"*.{'.'.join(labels[start:])}" in self._hosts for start in range(1, len(labels))):
            return True
        try:
            return self.has_address(ipaddress.ip_address(host))
        except ValueError:
            return False

    def has_address(self, address: Ip) -> bool:
        """Return whether an address is in an allowed network."""
        return any(address.version == one.version and address in one for one in self._networks)


def inner(address: Ip) -> Ip:
    """Return the IPv4 address that an IPv6 address leads to, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or (address in _V4_COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return address


def refusal(address: Ip) -> str:
    """Return what kind of address it is if the public internet does not have it; empty if it does."""
    real = inner(address)
    if real in _METADATA or address in _METADATA:
        return "a metadata service"
    for one in {address, real}:
        for kind, what in (
            (one.is_loopback, "loopback"),
            (one.is_link_local, "link-local"),
            (one.is_multicast, "multicast"),
            (one.is_unspecified, "unspecified"),
        ):
            if kind:
                return what
        for network, what in _DENIED:
            if one.version == network.version and one in network:
                return what
    if real.is_private:
        return "private"
    return "" if real.is_global and not real.is_reserved else "not public"


class Rules:
    """Decides on addresses of endpoints. `only_allowed`: nothing but the allow list, not even public addresses."""

    def __init__(self, allowed: AllowList, *, only_allowed: bool = False) -> None:
        self._allowed = allowed
        self._only_allowed = only_allowed

    def check_target(self, target: Target) -> None:
        """Refuse what can be refused without a resolution. Raises POLICY_VIOLATION."""
        allowed = self._allowed.has_host(target.host)
        if target.host in _METADATA_NAMES:
            raise _policy(f"{target.host} is a metadata service of a cloud; no webhook connects to it.")
        if self._only_allowed and not allowed and not self._by_address(target):
            raise _policy(
                f"{target.host} is not in the setting `webhook_allow`, and clients here need no login."
            )
        if not target.secure and not allowed:
            raise _policy(
                f"A webhook to {target.host} needs https://. The setting `webhook_allow` lists the hosts that may "
                "have http://."
            )
        literal = _literal(target.host)
        if literal is not None:
            try:
                self.check_address(target, literal)
            except RefusedAddressError as error:
                raise _policy(f"{error}") from None

    def check_address(self, target: Target, address: Ip) -> None:
        """Raise RefusedAddressError if the endpoint may not have this address."""
        real = inner(address)
        kind = refusal(address)
        if kind == "a metadata service":
            raise RefusedAddressError(f"{target.host} has the address {address}, {kind}")
        if (
            self._allowed.has_host(target.host)
            or self._allowed.has_address(address)
            or self._allowed.has_address(real)
        ):
            return
        if kind or self._only_allowed:
            raise RefusedAddressError(
                f"{target.host} has the address {address} ({kind or 'public'}), which the setting `webhook_allow` "
                "does not list"
            )

    def _by_address(self, target: Target) -> bool:
        """Return whether the allow list may still allow a name by its addresses."""
        return target.secure and _literal(target.host) is None


def check_all(
    rules: Rules, target: Target, found: Sequence[str], own: Iterable[tuple[str, int]]
) -> list[str]:
    """Check every address that a host has; return them. `own`: host and port of this process's listeners.

    Raises RefusedAddressError.
    """
    addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in found]
    if not addresses:
        raise RefusedAddressError(f"{target.host} has no address")
    own_ports = {port for _, port in own}
    for address in addresses:
        rules.check_address(target, address)
        if target.port in own_ports and is_local(inner(address)):
            raise RefusedAddressError(f"{target.host}:{target.port} is a listener of this process")
    return [str(address) for address in addresses]


def is_local(address: Ip) -> bool:
    """Return whether an address is one of this machine."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if isinstance(address, ipaddress.IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _literal(host: str) -> Ip | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)


def _policy(text: str) -> BrokerError:
    return BrokerError(ErrorCode.POLICY_VIOLATION, text)
