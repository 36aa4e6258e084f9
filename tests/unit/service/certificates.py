"""Certificates for tests: a real chain, of root, intermediate and server."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import trustme


class Pairs:
    """Certificates of one chain, and their keys, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = trustme.CA()
        self.signer = self.root.create_child_ca()

    def make(self, name: str, *hosts: str, **dates: Any) -> tuple[str, str]:
        """The paths of a certificate with its chain, for these hosts too, and of its key."""
        made = self.signer.issue_cert("localhost", "127.0.0.1", "::1", *hosts, **dates)
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        for path, content in (
            (cert, b"".join(one.bytes() for one in made.cert_chain_pems)),
            (key, made.private_key_pem.bytes()),
        ):
            # As those who renew certificates do it: each whole, and one after the other.
            new = path.with_suffix(".new")
            new.write_bytes(content)
            new.chmod(0o600)
            os.replace(new, path)
        return str(cert), str(key)

    def trust(self) -> str:
        """The path of the root's certificate."""
        path = self.folder / "root.pem"
        self.root.cert_pem.write_to_path(str(path))
        return str(path)

    def client(self) -> ssl.SSLContext:
        """A client that trusts the root and nobody else."""
        return ssl.create_default_context(cafile=self.trust())
