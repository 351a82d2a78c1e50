"""Which addresses and URLs webhooks take, and which they refuse."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BrokerError, ErrorCode
from core.queues.webhooks.addresses import (
    AllowList,
    RefusedAddressError,
    Rules,
    check_all,
    is_local,
    parse_url,
    refusal,
)

PUBLIC = Rules(AllowList([]))
INSIDE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.1.1", "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "168.63.129.16", "224.0.0.1",
    "239.1.1.1", "255.255.255.255", "240.0.0.1", "192.0.0.192", "198.18.0.1", "192.0.2.1", "198.51.100.1",
    "203.0.113.9",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "2001::1",
    "2001:db8::1",
    "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "5f00::1", "3fff::1", "100::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert refusal(ipaddress.ip_address(address))
    with pytest.raises(RefusedAddressError):
        check_all(PUBLIC, parse_url("https://example.org/"), [address], [])


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_a_public_address_is_taken(address: str) -> None:
    assert refusal(ipaddress.ip_address(address)) == ""
    assert check_all(PUBLIC, parse_url("https://example.org/"), [address], [])


@given(st.ip_addresses(v=4))
def test_no_form_of_a_refused_ipv4_address_in_ipv6_is_taken(address: ipaddress.IPv4Address) -> None:
    if not refusal(address):
        return
    value = int(address)
    for form in (0xFFFF << 32 | value, 0x0064FF9B << 96 | value, 0x2002 << 112 | value << 80):
        assert refusal(ipaddress.IPv6Address(form))


def test_every_address_of_a_name_is_checked() -> None:
    with pytest.raises(RefusedAddressError, match=r"127\.0\.0\.1 \(loopback\)"):
        check_all(PUBLIC, parse_url("https://example.org/"), ["1.1.1.1", "127.0.0.1"], [])
    with pytest.raises(RefusedAddressError, match="no address"):
        check_all(PUBLIC, parse_url("https://example.org/"), [], [])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/", "example.org", "//example.org", "https://", "https://user@example.org/",
        "https://user:secret@example.org/", "https://example.org/#part", "https://example.org/#",
        "https://exa mple.org/", "https://example.org/a b", "https://example.org/a\r\nhost: x", "https://example.org/\tx",
        "https://example.org:22/",
        "https://example.org:0/", "https://example.org:99999/", "https://example.org:x/", "https://example.org/ä",
        "https://[fe80::1%eth0]/", "https://[zz]/", "https://" + "a" * 3000, "https://ex\x00ample.org/",
        "https://example.org\\@127.0.0.1/", "file:///etc/passwd", "https://%31/",
    ],
)  # fmt: skip
def test_a_url_that_is_none_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(BrokerError) as caught:
        parse_url(url)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert "secret" not in caught.value.message


def test_the_parts_of_a_url() -> None:
    target = parse_url("HTTPS://Example.ORG.:8443/a/b?c=d")
    assert target == (True, "example.org", 8443, "/a/b?c=d")
    assert (target.authority, target.origin) == ("example.org:8443", "https://example.org:8443")
    assert parse_url("https://example.org").authority == "example.org"
    assert parse_url("https://[2606:4700::1]:443/x").authority == "[2606:4700::1]"
    assert parse_url("https://bücher.example/").host == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://127.0.0.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://metadata.google.internal/",
    ],
)
def test_without_a_word_of_the_operator_there_is_tls_and_no_inside(url: str) -> None:
    with pytest.raises(BrokerError) as caught:
        PUBLIC.check_target(parse_url(url))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_the_allow_list_has_networks_addresses_names_and_domains() -> None:
    rules = Rules(AllowList(["10.1.0.0/16", "127.0.0.1", "hooks.internal", "*.corp.example", "::1"]))
    for url, address in (
        ("http://hooks.internal/", "10.9.9.9"), ("http://a.b.corp.example/", "192.168.0.1"),
        ("https://example.org/", "10.1.2.3"), ("http://127.0.0.1:8080/", "127.0.0.1"), ("http://[::1]:8080/", "::1"),
    ):  # fmt: skip
        target = parse_url(url)
        rules.check_target(target)
        check_all(rules, target, [address], [])
    for url, address in (
        ("https://corp.example/", "10.9.9.9"), ("https://example.org/", "10.2.0.1"),
        ("https://x.hooks.internal/", "10.9.9.9"),
    ):  # fmt: skip
        with pytest.raises(RefusedAddressError):
            check_all(rules, parse_url(url), [address], [])


def test_a_metadata_service_is_never_reached_not_even_by_the_allow_list() -> None:
    rules = Rules(AllowList(["0.0.0.0/0", "hooks.internal"]))
    for address in ("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "168.63.129.16"):
        with pytest.raises(RefusedAddressError, match="metadata"):
            check_all(rules, parse_url("http://hooks.internal/"), [address], [])


def test_only_what_is_allowed_if_clients_need_no_login() -> None:
    rules = Rules(AllowList(["10.1.0.0/16", "hooks.example"]), only_allowed=True)
    rules.check_target(parse_url("https://hooks.example/"))
    check_all(rules, parse_url("https://hooks.example/"), ["1.1.1.1"], [])
    # By its address; the name is resolved when it is used.
    check_all(rules, parse_url("https://other.example/"), ["10.1.0.5"], [])
    with pytest.raises(RefusedAddressError):
        check_all(rules, parse_url("https://other.example/"), ["1.1.1.1"], [])
    with pytest.raises(BrokerError):
        rules.check_target(parse_url("https://1.1.1.1/"))


def test_a_listener_of_this_process_is_refused_even_if_its_address_is_allowed() -> None:
    rules = Rules(AllowList(["127.0.0.0/8"]))
    target = parse_url("http://127.0.0.1:9092/")
    for host in ("127.0.0.1", "127.0.0.5"):
        with pytest.raises(RefusedAddressError, match="listener of this process"):
            check_all(rules, target, [host], [("0.0.0.0", 9092)])
    assert check_all(rules, target, ["127.0.0.1"], [("0.0.0.0", 9093)])
    assert is_local(ipaddress.ip_address("127.0.0.1"))
    assert not is_local(ipaddress.ip_address("192.0.2.77"))


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "a b", "http://x", "x:80", "*", "é"])
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is no network"):
        AllowList([entry])
