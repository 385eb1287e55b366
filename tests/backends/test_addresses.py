"""The address guard: a table of attacks."""

import asyncio
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.backends.addresses import AddressGuard, Target, refusal
from opensearch_vl.errors import BackendDown, BadInput, Blocked, ToolError

PUBLIC = "93.184.216.34"


def resolving(*answers: str) -> AddressGuard:
    async def resolver(host: str, port: int) -> list[str]:
        return list(answers)

    return AddressGuard(resolver)


def check(url: str, *answers: str) -> Target:
    return asyncio.run(resolving(*(answers or (PUBLIC,))).check(url))


@pytest.mark.parametrize(
    ("url", "sent", "host", "port"),
    [
        ("http://example.org", "http://example.org", "example.org", 80),
        ("HTTPS://Example.ORG:443/a?b=c#frag", "https://example.org/a?b=c", "example.org", 443),
        (" https://example.org./x ", "https://example.org/x", "example.org", 443),
        ("https://example.org:80/", "https://example.org:80/", "example.org", 80),
        ("http://bücher.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80),
        ("http://93.184.216.34/", "http://93.184.216.34/", "93.184.216.34", 80),
        ("http://[2606:2800:220:1::1]/", "http://[2606:2800:220:1::1]/", "2606:2800:220:1::1", 80),
    ],
)
def test_public_addresses_pass(url: str, sent: str, host: str, port: int) -> None:
    target = check(url)
    assert (target.url, target.host, target.port) == (sent, host, port) and target.addresses


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "javascript:alert(1)",
        "data:text/html,x",
        "/etc/passwd",
        "//example.org/",
        "example.org",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://foo.localhost/",
        "http://printer.local/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://intranet/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.0.0.1./",
        "http://127.0.0.0x1/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://10.0.0.8/",
        "http://172.16.3.4/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.100.100.200/",
        "http://100.64.0.1/",
        "http://192.0.0.192/",
        "http://168.63.129.16/",
        "http://198.18.0.1/",
        "http://224.0.0.1/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::10.0.0.1]/",
        "http://[64:ff9b:1::1]/",
        "http://[2002:7f00:1::]/",
        "http://[2002:a00:1::1]/",
        "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/",
        "http://[fc00::1]/",
        "http://[ff02::1]/",
        "http://[2001:db8::1]/",
        "http://[100::1]/",
        "http://user:pw@example.org/",
        "http://example.org@127.0.0.1/",
        "http://example.org:22/",
        "http://example.org:8080/",
        "http://example.org:6379/",
        "http://example.org\\@127.0.0.1/",
        "http://example.org/\r\nHost: evil",
        "http://exa mple.org/",
        "http://example.org:99999/",
        "http://[::1",
        "http://",
        "http:///path",
        "http://-bad-.example/",
        "http://a..b/",
        "http://" + "a" * 5000,
        "",
    ],
)
def test_attacks_are_refused(url: str) -> None:
    with pytest.raises((Blocked, BadInput)):
        check(url)


@pytest.mark.parametrize(
    "answers",
    [("127.0.0.1",), (PUBLIC, "10.0.0.1"), ("::1",), ("fe80::1%eth0",), ("64:ff9b::a9fe:a9fe",), ("169.254.169.254",)],
)
def test_names_that_resolve_to_private_addresses_are_refused(answers: tuple[str, ...]) -> None:
    with pytest.raises(Blocked):
        check("http://rebind.example/", *answers)


def test_other_ports_and_an_intranet_can_be_allowed() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["10.1.2.3"]

    guard = AddressGuard(resolver, frozenset({8080}), (ipaddress.ip_network("10.1.0.0/16"),))
    assert asyncio.run(guard.check("http://wiki.example:8080/")).addresses == ("10.1.2.3",)
    with pytest.raises(Blocked):
        asyncio.run(guard.check("http://10.2.0.1:8080/"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (socket.gaierror(socket.EAI_NONAME, "x"), BadInput),
        (socket.gaierror(socket.EAI_AGAIN, "x"), BackendDown),
        (OSError("x"), BackendDown),
        (None, BadInput),
    ],
)
def test_names_that_do_not_resolve(error: OSError | None, kind: type[ToolError]) -> None:
    async def resolver(host: str, port: int) -> list[str]:
        if error is not None:
            raise error
        return []

    with pytest.raises(kind):
        asyncio.run(AddressGuard(resolver).check("http://nowhere.example/"))


def test_behind_a_proxy_it_checks_what_it_can_and_says_so() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        raise AssertionError("the proxy resolves names")

    guard = AddressGuard(resolver, proxied=True)
    assert asyncio.run(guard.check("http://example.org/")).addresses == ()
    for url in (
        "http://127.0.0.1/",
        "http://localhost/",
        "http://[::1]/",
        "ftp://example.org/",
        "http://example.org:25/",
    ):
        with pytest.raises(Blocked):
            asyncio.run(guard.check(url))
    assert "not" in guard.limits and AddressGuard(resolver).limits == ""


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_fares_the_same_in_every_wrapping(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    bare = refusal(address) is None
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | number)
    nat64 = ipaddress.IPv6Address((0x64FF9B << 96) | number)
    sixtofour = ipaddress.IPv6Address((0x2002 << 112) | (number << 80))
    assert {refusal(wrapped) is None for wrapped in (mapped, nat64, sixtofour)} == {bare}
    assert bare <= address.is_global


@given(st.text(max_size=60))
def test_any_text_is_answered_with_a_tool_error_or_a_target(text: str) -> None:
    for url in (text, f"http://{text}", f"http://{text}/x", f"https://example.org/{text}"):
        try:
            target = check(url)
        except ToolError:
            continue
        assert target.scheme in ("http", "https") and target.port in (80, 443)
