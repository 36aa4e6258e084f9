"""Refuse request smuggling: heads that a proxy and this server could understand differently, by
which one request passes a proxy hidden in the body of another.

httptools refuses most of them: two lengths, a length beside chunks, spaces before a colon. What it
lets pass is refused here, before anything of the request is done.
"""

from __future__ import annotations

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
    method: bytes, version: str, by_name: dict[bytes, bytes], headers: list[tuple[bytes, bytes]]
) -> tuple[int, str] | None:
    """The status and the reason if a request with these headers is not read; None if it is."""
    if len(by_name) < len(headers):
        names = [name for name, _ in headers]
        twice = sorted(name.decode() for name in _ONCE & by_name.keys() if names.count(name) > 1)
        if twice:
            return 400, f"the header {twice[0]} comes twice"
    if b"transfer-encoding" in by_name:
        codings = b",".join(value for name, value in headers if name == b"transfer-encoding")
        if codings.strip().lower() != b"chunked":
            return 501, "Transfer-Encoding must be chunked, and no more: send the body as it is"
    if method == b"CONNECT":
        return 400, "CONNECT is for proxies, which this server is not"
    if b"host" not in by_name and version != "1.0":
        return 400, "there must be a Host header"
    return None
