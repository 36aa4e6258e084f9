"""Heads of requests that two readers could understand differently are refused, before anything of
them is done: it is by those that one request is smuggled past a proxy in another's body.

httptools refuses most: two lengths, a length beside chunks, spaces before a colon. Not these.
"""

from __future__ import annotations

__all__ = ["FRAMING", "refusal"]

# How long the body is.
FRAMING = frozenset({b"content-length", b"transfer-encoding"})
# Where two of them would each be right for somebody.
_ONCE = frozenset(
    {
        *(b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"),
        *(b"authorization", b"content-type"),
    }
)


def refusal(
    method: bytes, version: str, given: dict[bytes, bytes], headers: list[tuple[bytes, bytes]]
) -> tuple[int, str] | None:
    """The status and the reason if a request with these headers is not read; None if it is."""
    if len(given) < len(headers):
        names = [name for name, _ in headers]
        twice = sorted(name.decode() for name in _ONCE & given.keys() if names.count(name) > 1)
        if twice:
            return 400, f"the header {twice[0]} comes twice"
    if b"transfer-encoding" in given:
        codings = b",".join(value for name, value in headers if name == b"transfer-encoding")
        if codings.strip().lower() != b"chunked":
            return 501, "Transfer-Encoding must be chunked, and no more: send the body as it is"
    if method == b"CONNECT":
        return 400, "CONNECT is for proxies, which this server is not"
    if b"host" not in given and version != "1.0":
        return 400, "there must be a Host header"
    return None
