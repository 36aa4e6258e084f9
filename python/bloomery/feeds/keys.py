"""The keys of a feed: Ed25519, by the package `cryptography` (the extra `feeds`)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bloomery import errors, extras

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PREFIX = "ed25519:"
_MAX_FILE = 1 << 16
_WHAT = "a signed feed"


@dataclass(frozen=True)
class PublicKey:
    """A publisher's public key, which subscribers trust; as text, `ed25519:` and base64."""

    raw: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read a key from its text."""
        try:
            raw = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != 32 or not text.strip().startswith(_PREFIX):
            raise errors.InvalidParameter(
                f"{text.strip()[:60]!r} is not a public key, must be {_PREFIX} and 44 characters "
                "of base64"
            )
        return cls(raw)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> list[PublicKey]:
        """Read the keys of a file: one a line; lines that are empty or begin with # are skipped."""
        with open(path, "rb") as file:
            text = file.read(_MAX_FILE).decode("utf-8", "replace")
        lines = (line.strip() for line in text.splitlines())
        keys = [cls.parse(line) for line in lines if line and not line.startswith("#")]
        if not keys:
            raise errors.InvalidParameter(f"{os.fspath(path)} has no public key in it")
        return keys

    @cached_property
    def id(self) -> str:
        """Its id in a manifest: 16 hexadecimal digits."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    def __str__(self) -> str:
        return _PREFIX + base64.b64encode(self.raw).decode("ascii")

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """True if the signature is this key's, over these bytes."""
        with extras.needed("cryptography", _WHAT, "feeds"):
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except (InvalidSignature, ValueError):  # ValueError: not a point of the curve
            return False
        return True


class PrivateKey:
    """A publisher's private key, in a PEM file that only its owner may read."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<PrivateKey of {self.public}>"

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> PrivateKey:
        """Make a key and write its file, which must not be there yet and is its owner's alone."""
        with extras.needed("cryptography", _WHAT, "feeds"):
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        key = Ed25519PrivateKey.generate()
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        return cls(key)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivateKey:
        """Read a key from its file; a file that others may read is refused."""
        with extras.needed("cryptography", _WHAT, "feeds"):
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise errors.NotAllowed(
                    f"{os.fspath(path)}: a private key that others may read (mode {mode:03o}): "
                    "chmod 600, and make a new key if others can have read it"
                )
            text = file.read(_MAX_FILE)
        try:
            key = load_pem_private_key(text, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
            raise errors.InvalidParameter(
                f"{os.fspath(path)} is no private key in PEM without a password: {problem}"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise errors.InvalidParameter(f"{os.fspath(path)} is a key, but not of Ed25519")
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """Sign these bytes: 64 bytes."""
        return self._key.sign(data)


def trusted(keys: PublicKey | str | Iterable[PublicKey | str]) -> list[PublicKey]:
    """The public keys that somebody named, each as an object or as text; at least one."""
    given = [keys] if isinstance(keys, PublicKey | str) else list(keys)
    trusted = [key if isinstance(key, PublicKey) else PublicKey.parse(key) for key in given]
    if not trusted:
        raise errors.InvalidParameter("keys is empty, must have a public key to trust")
    return trusted
