"""The address guard: which addresses a model, a dataset or a page may make us connect to.

Refused are other schemes than http(s), other ports than 80 and 443, credentials in the address, spellings of hosts that
parsers disagree about, and every host that resolves to something not on the public internet: loopback, private,
link-local (cloud metadata), multicast, reserved, and IPv4 addresses of these kinds wrapped in IPv6. The addresses that
were checked are returned, so that the caller connects to exactly them and a second look-up cannot give another answer.
Base URLs of services set by the operator do not pass through here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from opensearch_vl.errors import BackendDown, BadInput, Blocked

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Host and port to textual addresses; an empty list or `OSError` when there are none."""

MAX_URL_CHARS = 4000
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa", ".onion")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_BLOCKED_V4: tuple[Network, ...] = (
    ipaddress.ip_network("192.0.0.0/24"),  # protocol assignments; metadata of one cloud lives at 192.0.0.192
    ipaddress.ip_network("192.88.99.0/24"),  # 6to4 relays
    ipaddress.ip_network("168.63.129.16/32"),  # host services of one cloud, at a public-looking address
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_SIT = ipaddress.IPv6Network("::ffff:0:0:0/96")  # IPv4-translated, RFC 2765
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address.

    Attributes:
        url: The address as it will be sent, without a fragment.
        scheme: `http` or `https`.
        host: Host in ASCII, without brackets.
        port: Port.
        addresses: What the host resolved to, all allowed; empty when a proxy resolves it.
    """

    url: str
    scheme: str
    host: str
    port: int
    addresses: tuple[str, ...] = ()


def refusal(address: IP, allowed: Collection[Network] = ()) -> str | None:
    """Why an IP address must not be connected to, or None if it may."""
    if any(address.version == network.version and address in network for network in allowed):
        return None
    if isinstance(address, ipaddress.IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            why = refusal(inner, allowed)
            return why and f"{why}, inside an IPv6 address"
        if address in _NAT64_LOCAL or address not in _GLOBAL_V6:
            return "not a public address"
    elif any(address in network for network in _BLOCKED_V4):
        return "a reserved address"
    for what in ("loopback", "link_local", "multicast", "unspecified", "reserved", "private"):
        if getattr(address, f"is_{what}"):
            return f"a {what.replace('_', '-')} address"
    return None if address.is_global else "not a public address"


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for: mapped, translated, compatible, NAT64, 6to4, Teredo."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64 or address in _SIT or (address in _COMPATIBLE and int(address) > 1):
        return low
    return None


async def system_resolver(host: str, port: int) -> list[str]:
    """Addresses of a host by the operating system."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class AddressGuard:
    """Checks addresses before anything connects to them.

    Attributes:
        resolver: How hosts are looked up.
        ports: Ports that may be used.
        allowed_networks: Networks that may be used although they are not public, for an intranet of one's own.
        proxied: A proxy makes the connections and resolves the names: then only the address as written can be checked.
    """

    resolver: Resolver = system_resolver
    ports: frozenset[int] = frozenset({80, 443})
    allowed_networks: tuple[Network, ...] = ()
    proxied: bool = False

    @property
    def limits(self) -> str:
        """What cannot be checked here; empty when everything is."""
        if not self.proxied:
            return ""
        return (
            "A proxy resolves host names here: names and literal addresses are checked, what a name resolves to is "
            "not. Let the proxy refuse private networks."
        )

    async def check(self, url: str) -> Target:
        """Check an address and resolve it.

        Raises:
            BadInput: Not an address at all, or a host that does not exist.
            Blocked: An address that must not be connected to.
            BackendDown: Name resolution does not work.
        """
        target = self.parse(url)
        literal = _literal(target.host)
        if literal is not None:
            self._refuse(target.host, literal)
            return Target(target.url, target.scheme, target.host, target.port, (str(literal),))
        if "." not in target.host or target.host.endswith(_PRIVATE_SUFFIXES):
            raise Blocked(f"{target.host!r} is a name of a local network; only public addresses may be read.")
        if self.proxied:
            return target
        try:
            found = await self.resolver(target.host, target.port)
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise BackendDown("Names cannot be resolved at the moment.") from error
            raise BadInput(f"There is no host {target.host!r}.") from error
        except OSError as error:
            raise BackendDown("Names cannot be resolved at the moment.") from error
        if not found:
            raise BadInput(f"There is no host {target.host!r}.")
        for text in found:
            self._refuse(target.host, ipaddress.ip_address(text.partition("%")[0]))
        return Target(target.url, target.scheme, target.host, target.port, tuple(found))

    def _refuse(self, host: str, address: IP) -> None:
        why = refusal(address, self.allowed_networks)
        if why is not None:
            raise Blocked(f"{host!r} leads to {why}; only public addresses may be read.")

    def parse(self, url: str) -> Target:
        """Take an address apart, without looking anything up.

        Raises:
            BadInput: Not an address.
            Blocked: A scheme, port or spelling that is refused.
        """
        text = url.strip()
        if not text or len(text) > MAX_URL_CHARS:
            raise BadInput(f"An http(s) address of at most {MAX_URL_CHARS} characters was expected.")
        if any(ord(ch) <= 32 or ch == "\\" or ord(ch) == 127 for ch in text):
            raise BadInput("The address holds spaces, control characters or backslashes.")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise BadInput(f"{text[:200]!r} is not a valid address.") from error
        scheme = parts.scheme.lower()
        if scheme not in ("http", "https"):
            raise Blocked(f"Only http and https addresses may be read, not {scheme[:20] or 'a path'!r}.")
        if parts.username is not None or parts.password is not None:
            raise Blocked("Addresses with a user name or password are refused.")
        host = _host(parts)
        port = port if port is not None else (443 if scheme == "https" else 80)
        if port not in self.ports:
            raise Blocked(f"Port {port} is refused; allowed: {', '.join(map(str, sorted(self.ports)))}.")
        default = 443 if scheme == "https" else 80
        shown = f"[{host}]" if ":" in host else host
        netloc = shown if port == default else f"{shown}:{port}"
        return Target(parts._replace(scheme=scheme, netloc=netloc, fragment="").geturl(), scheme, host, port)


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise BadInput("The address names no host.")
    if ":" in host:
        if "%" in host:
            raise Blocked("IPv6 addresses with a zone are local and refused.")
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError as error:
            raise BadInput(f"[{host}] is not an IPv6 address.") from error
    try:
        ascii_host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise BadInput(f"{host[:100]!r} is not a host name.") from error
    ascii_host = ascii_host.lower().rstrip(".")
    labels = ascii_host.split(".")
    if _looks_numeric(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(ascii_host))  # dotted decimal only: no octal, hex, or short forms
        except ValueError as error:
            raise Blocked(f"{ascii_host[:100]!r} is an unusual spelling of an IPv4 address and refused.") from error
    if len(ascii_host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadInput(f"{host[:100]!r} is not a host name.")
    return ascii_host


def _looks_numeric(label: str) -> bool:
    """Whether URL parsers take a host that ends in this label for an IPv4 address (WHATWG URL, "ends in a number")."""
    return label.isdigit() or re.fullmatch(r"0x[0-9a-f]*", label) is not None


def _literal(host: str) -> IP | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
