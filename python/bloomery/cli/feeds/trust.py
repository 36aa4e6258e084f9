"""The public keys that a command line trusts: as text, or in files."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bloomery.feeds import PublicKey


def trusted_keys(given: list[str]) -> "list[PublicKey]":
    """Each is a key as text (ed25519:…), or a file of such lines."""
    from bloomery.feeds import PublicKey

    public_keys: list[PublicKey] = []
    for text in given:
        public_keys += (
            [PublicKey.parse(text)] if text.startswith("ed25519:") else PublicKey.read(text)
        )
    return public_keys
