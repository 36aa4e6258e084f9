"""The TLS certificate of both protocols: its chain and its key, reloaded when the files change.

HTTP uses Python's `ssl`, with one context while the server runs. The workers of the Redis protocol
use rustls and get the PEM (`on_change`). A new certificate is loaded into a separate context and
tried by a handshake in memory. If workers accept it too, both protocols use it from then on.
A key that does not match, a truncated file or an expired certificate changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bloomery import _native, errors
from bloomery.service.events import Event

_LOOK_SECONDS = 5.0  # between looks at the files
WARN_SECONDS = 14 * 86_400.0  # before it runs out
_TELL_SECONDS = 86_400.0  # between two warnings
# OpenSSL's, which Python does not name: here the dates are looked at afterwards.
_NO_CHECK_TIME = 0x200000
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # for TLS 1.2; those of 1.3 are all good


class Certificate(NamedTuple):
    """A certificate that fits its key."""

    context: ssl.SSLContext
    pem: tuple[bytes, bytes]  # the chain and the key
    begins: float
    expires: float  # the soonest of its chain
    names: tuple[str, ...]  # of hosts that it is for, as *.example.org too

    def trouble(self, now: float) -> str | None:
        """Why clients would refuse it at this time, or None."""
        if now < self.begins:
            return f"is not valid before {_date(self.begins)}"
        return f"has expired: {_date(self.expires)}" if now >= self.expires else None


def load(cert: str, key: str) -> Certificate:
    """Load a chain (PEM, the server's own certificate first) and its key; InvalidParameter says
    what is wrong with them. Dates are for the caller to look at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    for name, path in (("tls-cert", cert), ("tls-key", key)):
        _check_readable(name, path)
    pem = _read(cert), _read(key)
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
        chain = _chain(cert)
        leaf = _handshake(context, chain)
    except ssl.SSLCertVerificationError as problem:
        raise errors.InvalidParameter(
            f"tls-cert is {cert}, which clients would refuse: {problem.verify_message}"
        ) from None
    except ssl.SSLError as problem:
        raise errors.InvalidParameter(_described(problem, cert, key)) from None
    # Those of the chain that sign others; the server's own comes from the handshake.
    certificates: list[Any] = [leaf, *chain.get_ca_certs()]
    try:
        begins = max(ssl.cert_time_to_seconds(str(link["notBefore"])) for link in certificates)
        expires = min(ssl.cert_time_to_seconds(str(link["notAfter"])) for link in certificates)
    except ValueError:
        raise errors.InvalidParameter(
            f"tls-cert is {cert}, in which a date is damaged: take it anew from who issued it"
        ) from None
    names = tuple(name for kind, name in leaf.get("subjectAltName", ()) if kind == "DNS")
    if pem != (_read(cert), _read(key)):
        raise errors.InvalidParameter(f"tls-cert {cert} or tls-key {key} is being replaced; retry")
    try:
        _native.check_certificate(*pem)  # RESP uses another library for TLS than HTTP
    except errors.InvalidParameter as problem:
        raise errors.InvalidParameter(
            f"tls-cert is {cert} and tls-key is {key}: {problem}"
        ) from None
    return Certificate(context, pem, begins, expires, names)


class Tls:
    """The certificate that a server uses now, and how it is reloaded."""

    def __init__(self, cert: str, key: str, say: Callable[..., None]) -> None:
        """InvalidParameter if there is none to begin with; one that has expired is told of."""
        self.cert, self.key = cert, key
        self._say = say
        self.on_change: Event[[Certificate]] = Event()  # a new certificate is used
        self._warned_at = 0.0
        self._seen = self._signature()
        self._now = load(cert, key)
        self.context = self._now.context
        self.context.sni_callback = self._choose
        self.warn()

    @property
    def expires(self) -> float:
        """When it runs out, as Unix time."""
        return self._now.expires

    @property
    def pem(self) -> tuple[bytes, bytes]:
        """The chain and the key, as native code needs them."""
        return self._now.pem

    @property
    def names(self) -> tuple[str, ...]:
        """Of hosts that it is for."""
        return self._now.names

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        # OpenSSL asks for every client, also for one that names no host.
        connection.context = self._now.context

    async def watch(self, asked: asyncio.Event) -> None:
        """Look every few seconds, and at once when asked (SIGHUP)."""
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asked.wait(), _LOOK_SECONDS)
            always = asked.is_set()
            asked.clear()
            try:
                await asyncio.to_thread(self.reload_if_changed, always=always)
            except Exception as problem:  # noqa: BLE001  # or nobody would look again
                self._say("the certificate was not looked at", level="error", problem=problem)

    def reload_if_changed(self, *, always: bool = False) -> None:
        """Take the files again if they have changed; if they are no good, keep what is there."""
        signature = self._signature()
        if signature == self._seen and not always:
            self.warn()
            return
        self._seen = signature
        try:
            new = load(self.cert, self.key)
            if trouble := new.trouble(time.time()):
                raise errors.InvalidParameter(f"tls-cert is {self.cert}, which {trouble}")
            self.on_change(new)
        except errors.InvalidParameter as problem:
            self._say(f"the certificate stays as it is: {problem}", level="error")
            return
        self._now, self._warned_at = new, 0.0
        self._say("a new certificate", expires=_date(new.expires))
        self.warn()

    def warn(self) -> None:
        """Tell, once a day, that it runs out soon, or has."""
        now = time.time()
        if self.expires - now > WARN_SECONDS or abs(now - self._warned_at) < _TELL_SECONDS:
            return
        self._warned_at = now
        trouble = self._now.trouble(now)
        days = max(0, int((self.expires - now) / 86_400))
        self._say(
            f"the certificate {trouble or f'expires in {days} days'}: replace {self.cert}",
            level="error" if trouble else "warning",
            expires=_date(self.expires),
        )

    def _signature(self) -> list[tuple[int, int, int]]:
        stamps = []
        for path in (self.cert, self.key):
            try:
                stat = os.stat(path)
                stamps.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
            except OSError:
                stamps.append((0, 0, 0))
        return stamps


def _check_readable(name: str, path: str) -> None:
    """Python's own error would not say which of the two files it is."""
    try:
        with open(path, "rb"):
            pass
    except OSError as problem:
        raise errors.InvalidParameter(
            f"{name} is {path}, must be a file that can be read: {problem.strerror}"
        ) from None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _refuse_password() -> str:
    raise errors.InvalidParameter(
        "tls-key is encrypted, must be without a password: openssl pkey -in KEY -out NEW"
    )


def _chain(cert: str) -> ssl.SSLContext:
    """Return a client that trusts the file's certificates, each by itself, whatever the time."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    client.load_verify_locations(cert)
    return client


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Let one meet the other in memory; the certificate that the client saw."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_side=False),
        server.wrap_bio(there, back, server_side=True),
    ]
    for end in ends * 3:  # to and fro, until both have it
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return dict(ends[0].getpeercert() or {})


def _described(problem: ssl.SSLError, cert: str, key: str) -> str:
    reason = str(problem.reason or "").upper()
    if "MISMATCH" in reason:
        return f"tls-key is {key}, which is not the key of {cert}"
    if "EE_KEY_TOO_SMALL" in reason or "MD_TOO_WEAK" in reason:
        return f"tls-cert is {cert}, which is too weak: {reason.lower().replace('_', ' ')}"
    return (
        f"tls-cert is {cert} and tls-key is {key}, must be a certificate and its key in PEM "
        f"({reason.lower().replace('_', ' ') or 'unreadable'})"
    )


def _date(at: float) -> str:
    # A date may be beyond what the C library takes.
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(min(at, 253_402_300_799)))
