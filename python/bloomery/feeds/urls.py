"""URLs as Safe Browsing looks them up: one spelling for each, and the parts that a list may name.

Facts from the public pages on URLs and hashing of versions 4 and 5 of that protocol. A list that
names `evil.example/` covers every page of that host and of the hosts below it, since each of them
has that expression.
"""

from __future__ import annotations

import ipaddress
import re
from itertools import product

from bloomery.errors import InvalidKey

_MAX_HOSTS = 5  # the host itself and four that it is part of
_MAX_FOLDERS = 4  # and the path with its query, and without
_SCHEME = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://")
_DIGITS = b"0123456789ABCDEFabcdef"
_HEX = {bytes(pair): int(bytes(pair), 16) for pair in product(_DIGITS, repeat=2)}
_MAX_NAME = 1024  # bytes of a name that is not ASCII: the codec is slow, and DNS has 253
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def canonical_url(url: str | bytes) -> str:
    """The one spelling of a URL: host in lower case and without its port, path without `.` and
    `..`, every escape that can be undone undone, no fragment."""
    scheme, host, path, query = _split(url)
    return f"{scheme}://{host}{path}{query}"


def url_key(url: str | bytes) -> str:
    """What a list that is to cover a URL, and all below it if it ends in `/`, has as its key."""
    _, host, path, query = _split(url)
    return f"{host}{path}{query}"


def url_expressions(url: str | bytes) -> list[str]:
    """All keys under which a list may name a URL: its host and up to four hosts that it is part of,
    each with the path and its query, the path, and up to four folders from the root on."""
    _, host, path, query = _split(url)
    return [f"{suffix}{prefix}" for suffix in _hosts(host) for prefix in _paths(path, query)]


def _hosts(host: str) -> list[str]:
    if _is_address(host):
        return [host]
    parts = host.split(".")
    # From the last five parts on, never the top-level domain alone.
    starts = range(max(1, len(parts) - _MAX_HOSTS), len(parts) - 1)
    return [host, *(".".join(parts[start:]) for start in starts)]


def _paths(path: str, query: str) -> list[str]:
    paths = [path + query, path] if query else [path]
    ends = [match.end() for match in re.finditer("/", path)]
    for end in ends[:_MAX_FOLDERS]:
        if path[:end] not in paths:
            paths.append(path[:end])
    return paths


def _split(url: str | bytes) -> tuple[str, str, str, str]:
    """Scheme, host, path and query (with its `?`) of a URL, in their one spelling."""
    given = url.encode("utf-8", "surrogatepass") if isinstance(url, str) else url
    data = _unescaped(given.strip(b" ").translate(None, b"\t\r\n").partition(b"#")[0])
    match = _SCHEME.match(data)
    scheme = match[1].decode("ascii").lower() if match else "http"
    rest = data[match.end() :] if match else data
    end = re.search(rb"[/?\\]", rest)
    authority, tail = (rest[: end.start()], rest[end.start() :]) if end else (rest, b"")
    path, mark, query = tail.partition(b"?")
    return scheme, _host(authority), _path(path), _escaped(mark + query)


def _unescaped(data: bytes) -> bytes:
    """Without escapes, however often something was escaped: as if all were undone until none is
    left, but in one pass, since a URL of a megabyte may be escaped half a million times."""
    first = data.find(b"%")
    if first < 0:
        return data
    out = bytearray(data[:first])
    for byte in data[first:]:
        out.append(byte)
        while out[-3:-2] == b"%" and (value := _HEX.get(bytes(out[-2:]))) is not None:
            out[-3:] = bytes([value])  # which may complete another
    return bytes(out)


def _escaped(data: bytes) -> str:
    """With an escape for what is not visible ASCII, for `#` and for `%`."""
    return "".join(
        chr(byte) if 32 < byte < 127 and byte not in b"#%" else f"%{byte:02X}" for byte in data
    )


def _path(data: bytes) -> str:
    parts: list[bytes] = []
    pieces = data.replace(b"\\", b"/").split(b"/")
    for piece in pieces:
        if piece == b"..":
            del parts[-1:]
        elif piece not in (b"", b"."):
            parts.append(piece)
    slash = b"/" if parts and pieces[-1] in (b"", b".", b"..") else b""
    return _escaped(b"/" + b"/".join(parts) + slash)


def _host(authority: bytes) -> str:
    name = authority.rpartition(b"@")[2]
    if name.startswith(b"["):
        bracketed, _, _ = name.partition(b"]")
        return _ipv6(bracketed[1:])
    name = _dotted(_punycode(_dotted(name.partition(b":")[0])))
    if not name:
        raise InvalidKey("a URL without a host")
    return _ipv4(name) or _escaped(name)


def _dotted(name: bytes) -> bytes:
    """In lower case, with single dots, and none at its ends."""
    return re.sub(rb"\.{2,}", b".", name).strip(b".").lower()


def _punycode(name: bytes) -> bytes:
    """A name that is not ASCII as DNS has it; bytes that are no such name stay as they are."""
    if name.isascii() or len(name) > _MAX_NAME:
        return name
    try:
        encoded = name.decode("utf-8").encode("idna")
    except UnicodeError:
        return name
    return encoded if re.fullmatch(rb"[A-Za-z0-9._-]+", encoded) else name


def _ipv4(name: bytes) -> str | None:
    """The address in four decimal numbers, if it is one: in any number of parts from one to four,
    each decimal, octal or hexadecimal, as C libraries take them."""
    pieces = name.split(b".")
    if len(pieces) > 4:
        return None
    numbers = [_number(piece) for piece in pieces]
    *heads, last = numbers
    if last is None or None in heads or last >= 256 ** (5 - len(numbers)):
        return None
    value = last
    for place, head in enumerate(heads):
        if head is None or head > 255:
            return None
        value += head << (24 - 8 * place)
    return str(ipaddress.IPv4Address(value))


def _number(piece: bytes) -> int | None:
    for form, base in (
        (rb"0x[0-9a-f]{1,16}", 16),
        (rb"0[0-7]{0,22}", 8),
        (rb"[1-9][0-9]{0,9}", 10),
    ):
        if re.fullmatch(form, piece):
            return int(piece, base)
    return None


def _ipv6(text: bytes) -> str:
    try:
        address = ipaddress.IPv6Address(text.decode("ascii"))
    except ValueError:
        raise InvalidKey(f"{text[:60]!r} in a URL is no address of IPv6") from None
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address in _NAT64:
        return str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return f"[{address.compressed}]"


def _is_address(host: str) -> bool:
    return host.startswith("[") or _ipv4(host.encode("ascii")) is not None
