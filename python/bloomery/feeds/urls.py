"""URLs as Safe Browsing looks them up: one spelling for each, and the parts that a list may name.

Facts from the public pages on URLs and hashing of versions 4 and 5 of that protocol. A list that
names `evil.example/` covers every page of that host and of the hosts below it, since each of them
has that expression.

Hosts and paths are read as browsers read them, by the WHATWG's URL standard: `http:evil.example`,
`https:/\\evil.example` and `//x%2F@evil.example` all lead to `evil.example`. Where the standard
finds no host, and no browser goes anywhere, the URL is read as Safe Browsing's pages say.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from itertools import product

from bloomery.errors import InvalidKey

_MAX_HOSTS = 5  # the host itself and four that it is part of
_MAX_FOLDERS = 4  # and the path with its query, and without
# Of http and its like, any number of slashes of either kind may follow; others have two.
_SCHEME = re.compile(rb"(https?|wss?|ftp):[/\\]*|([a-z][a-z0-9+.-]*)://|[/\\]{2,}", re.IGNORECASE)
_EDGES = bytes(range(33))  # controls and spaces, which browsers remove at either end
_DIGITS = b"0123456789ABCDEFabcdef"
_HEX = {bytes(pair): int(bytes(pair), 16) for pair in product(_DIGITS, repeat=2)}
_MAX_NAME = 1024  # bytes of a name that is not ASCII: the codec is slow, and DNS has 253
_ENDS = re.compile(rb"[/?\\@]")  # what ends a host, or the user before it
_NOT_IN_HOST = re.compile(r"[\x00-,/;-@\\^`{-\x7f]")  # ASCII but letters, digits and `-._:[]`
_DOT = re.compile(rb"%2e", re.IGNORECASE)
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
    data = _utf8(url) if isinstance(url, str) else url
    data = data.strip(_EDGES).translate(None, b"\t\r\n").partition(b"#")[0]
    match = _SCHEME.match(data)
    scheme = (match[1] or match[2] or b"http").decode("ascii").lower() if match else "http"
    rest = data[match.end() :] if match else data
    host, tail = _authority(rest)
    if _ENDS.search(host):  # an escaped slash, say: for a browser this is not a host
        host, tail = _authority(_unescaped(rest))
    path, mark, query = tail.partition(b"?")
    # Browsers resolve `..` before they undo escapes: in `/a%2Fb/../c`, it removes `a%2Fb`.
    path, mark, query = _unescaped(_resolved(path) + mark + query).partition(b"?")
    return scheme, _host(host), _path(path), _escaped(mark + query)


def _utf8(url: str) -> bytes:
    """Return a text's UTF-8; a surrogate that is not one of a pair becomes U+FFFD."""
    if url.isascii():
        return url.encode()
    return url.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _authority(rest: bytes) -> tuple[bytes, bytes]:
    """Return the host, with its port and without escapes and user, and what follows it."""
    end = re.search(rb"[/?\\]", rest)
    authority, tail = (rest[: end.start()], rest[end.start() :]) if end else (rest, b"")
    return _unescaped(authority.rpartition(b"@")[2]), tail


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
    pieces = _resolved(data).split(b"/")
    parts = [piece for piece in pieces if piece]
    slash = b"/" if parts and not pieces[-1] else b""
    return _escaped(b"/" + b"/".join(parts) + slash)


def _resolved(path: bytes) -> bytes:
    """Return a path with slashes of one kind, and without `.` and `..`, escaped or not."""
    _, *pieces = path.replace(b"\\", b"/").split(b"/")
    parts: list[bytes] = []
    last = b""
    for piece in pieces:
        last = _DOT.sub(b".", piece)
        if last == b"..":
            del parts[-1:]
        elif last != b".":
            parts.append(piece)
    if last in (b".", b".."):
        parts.append(b"")
    return b"/" + b"/".join(parts)


def _host(name: bytes) -> str:
    name = _folded(name)
    if name.startswith(b"["):
        bracketed, _, _ = name.partition(b"]")
        return _ipv6(bracketed[1:])
    labels = _dotted(name.partition(b":")[0]).split(b".")
    name = b".".join(map(_punycode, labels))
    if not name:
        raise InvalidKey("a URL without a host")
    return _ipv4(name) or _escaped(name)


def _dotted(name: bytes) -> bytes:
    """In lower case, with single dots, and none at its ends."""
    return re.sub(rb"\.{2,}", b".", name).strip(b".").lower()


# UTS #46 keeps these as they are, and NFKC and case folding would change them.
_KEPT = "\u00df\u03c2\u200c\u200d"
_CAPITAL_SHARP_S = "\u1e9e"
# It removes these: what is not seen.
_IGNORED = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2064\u206a-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0100-\U000e01ef]"
)
_IDEOGRAPHS = range(0x20000, 0x40000)  # none of them has another form


def _folded(name: bytes) -> bytes:
    """Return a name with one spelling for each letter, by UTS #46; bytes that are not text stay."""
    if name.isascii() or len(name) > _MAX_NAME:
        return name
    try:
        text = "".join(map(_mapped, _IGNORED.sub("", name.decode("utf-8"))))
    except UnicodeError:
        return name
    folded = unicodedata.normalize("NFC", text)
    strange = _NOT_IN_HOST.search(folded)
    if strange is not None:
        raise InvalidKey(
            f"{strange[0]!r} next to letters that are not ASCII in a URL's host: browsers disagree"
            " about which host that is"
        )
    return folded.encode()


def _mapped(character: str) -> str:
    if character in _KEPT or ord(character) in _IDEOGRAPHS:
        return unicodedata.normalize("NFC", character)
    if character == _CAPITAL_SHARP_S:
        return "\u00df"
    if unicodedata.category(character) == "Cn":
        raise InvalidKey(
            f"U+{ord(character):04X} in a URL's host is not a character of Unicode"
            f" {unicodedata.unidata_version}, which this Python knows: nobody can tell which host"
            " it is"
        )
    folded = unicodedata.normalize("NFKC", character).casefold()
    return unicodedata.normalize("NFKC", folded).replace("\u3002", ".")


def _punycode(label: bytes) -> bytes:
    """Return a label as DNS has it; bytes that are not text, or too many, stay."""
    if label.isascii() or len(label) > _MAX_NAME:
        return label
    try:
        return b"xn--" + label.decode("utf-8").encode("punycode")
    except UnicodeError:
        return label


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
    match = re.fullmatch(rb"0x0*([0-9a-f]{0,8})|0+([0-7]{0,11})|([1-9][0-9]{0,9})", piece)
    if match is None:
        return None
    base = {1: 16, 2: 8, 3: 10}[match.lastindex or 0]
    return int(match[match.lastindex or 0] or b"0", base)


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
