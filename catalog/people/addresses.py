"""Whose request it is, behind proxies that we know; and which networks an address is in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from django.http import HttpRequest

from catalog.conf import conf
from catalog.errors import RequestError

MOST_NETWORKS = 50
_PARAMETER = re.compile(r'(?:^|;)\s*(\w+)\s*=\s*(?:"([^"]*)"|([^;"\s]*))')
_ADDRESS = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\w+)?|([0-9.]+)(?::\w+)?")
_SCHEMES = ("http", "https")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client_address(request: HttpRequest) -> str:
    return address_in(request.META)


def address_in(meta: Mapping[str, Any]) -> str:
    """The client's address. With OPATLAS_PROXIES=n it is what the outermost of n trusted proxies saw, the
    n-th from the right of OPATLAS_PROXY_HEADER; without, headers are not believed."""
    return (_seen_by_proxies(meta).get("for") or str(meta.get("REMOTE_ADDR") or ""))[:64]


def scheme_in(meta: Mapping[str, Any]) -> str:
    """``https`` where the client spoke it, to the outermost trusted proxy or to the web server itself."""
    return _seen_by_proxies(meta).get("proto") or str(meta.get("wsgi.url_scheme", "http"))


def _seen_by_proxies(meta: Mapping[str, Any]) -> dict[str, str]:
    """What the outermost trusted proxy says: ``for`` and ``proto``; nothing where the request did not come by
    all of them. No hop of a proxy has a comma in it: whatever a client wrote, and left open, ends before the
    last of them."""
    given = conf()
    if given.proxies < 1 or not given.proxy_header:
        return {}
    is_standard = given.proxy_header == "Forwarded"
    text = meta.get("HTTP_FORWARDED" if is_standard else "HTTP_X_FORWARDED_FOR", "")
    hops = [hop for one in text.split(",") if (hop := one.strip())]
    nearest = hops[-given.proxies] if len(hops) >= given.proxies else ""
    if is_standard:
        return _parameters(nearest) if nearest else {}
    proto = str(meta.get("HTTP_X_FORWARDED_PROTO", "")).strip().lower()
    return {"for": nearest, "proto": proto if proto in _SCHEMES else ""}


def _parameters(hop: str) -> dict[str, str]:
    """Of one hop (RFC 7239): ``for="[2001:db8::1]:4711";proto=https``. A name in place of an address is
    ``unknown``: nobody's address, and in nobody's network."""
    found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(hop)}
    address = _ADDRESS.fullmatch(found.get("for", ""))
    proto = found.get("proto", "").lower()
    return {
        "for": (address[1] or address[2]) if address else "unknown",
        "proto": proto if proto in _SCHEMES else "",
    }


@lru_cache(maxsize=4096)
def sender_at(address: str) -> str:
    """Whom limits count as one sender: an IPv4 address; of IPv6 the network of 64 bits, since whoever has one
    of its addresses has all of them."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


def networks_of(texts: Sequence[str]) -> list[str]:
    """Networks as they are written shortest, each once; raises :class:`RequestError`."""
    if len(texts) > MOST_NETWORKS:
        raise RequestError(f"A key is limited to at most {MOST_NETWORKS} networks.", "addresses")
    return list(dict.fromkeys(str(_network(text)) for text in texts))


def is_within(address: str, networks: Sequence[str]) -> bool:
    """Whether an address is in one of the networks; what is no address is in none."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    # A socket of both families tells IPv4 as ::ffff:192.0.2.7.
    plain = getattr(found, "ipv4_mapped", None) or found
    return any(plain in network for network in _parsed(tuple(networks)))


def are_within(networks: Sequence[str], others: Sequence[str]) -> bool:
    """Whether each of these networks lies in one of the others. Raises :class:`RequestError` for what is no
    network."""
    around = _parsed(tuple(others))
    return all(any(_lies_in(network, other) for other in around) for network in map(_network, networks))


def _lies_in(network: Network, other: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and network.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and network.subnet_of(other)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        raise RequestError(
            f"{text[:60]!r} is no network: write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32.", "addresses"
        ) from None


@lru_cache(maxsize=1024)
def _parsed(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in networks)
