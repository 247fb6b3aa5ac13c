from __future__ import annotations

from ipaddress import ip_address

import pytest

from everfill.compute.fetch_client import read_url
from everfill.compute.fetch_guard import AddressGuard, is_public
from everfill.compute.protocol import Failure


@pytest.mark.parametrize("text", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_an_address_of_the_internet_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0",  # noqa: S104 - nothing is bound
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
    ],
)
def test_an_address_that_is_not_of_the_internet_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


def test_exceptions_are_hosts_addresses_and_networks() -> None:
    guard = AddressGuard(("intranet.example", "10.1.0.0/16", "::1", "192.168.0.7"))

    assert guard.allows("intranet.example", ip_address("172.16.0.9"))
    assert guard.allows("INTRANET.example.", ip_address("172.16.0.9"))
    assert guard.allows("any.example", ip_address("10.1.2.3"))
    assert guard.allows("any.example", ip_address("::ffff:10.1.2.3"))
    assert guard.allows("any.example", ip_address("192.168.0.7"))
    assert guard.allows("any.example", ip_address("::1"))
    assert not guard.allows("any.example", ip_address("10.2.0.1"))
    assert not guard.allows("sub.intranet.example", ip_address("172.16.0.9"))


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.org/a?b=1#c", "https://example.org/a?b=1#c"),
        (" example.org/path ", "https://example.org/path"),
        ("HTTP://Example.org", "http://example.org"),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, url: str) -> None:
    assert str(read_url(text)).rstrip("/") == url


@pytest.mark.parametrize("text", ["", "hello", "mailto:a@b.c", "javascript:alert(1)", "http:///x"])
def test_what_names_no_web_page_is_refused(text: str) -> None:
    refused = read_url(text)

    assert isinstance(refused, Failure)
    assert refused.code == "url_invalid"
