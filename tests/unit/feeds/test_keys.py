"""Keys: private ones are their owner's alone, public ones are text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bloomery.errors import InvalidParameter, NotAllowed
from bloomery.feeds import PrivateKey, PublicKey
from conftest import require

require("cryptography")


def test_a_key_file_is_its_owners_alone(tmp_path: Path) -> None:
    """A new key has mode 600 whatever the umask, and replaces no file that is there."""
    path = tmp_path / "feed.key"
    before = os.umask(0)
    try:
        key = PrivateKey.create(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        PrivateKey.create(path)
    assert PrivateKey.load(path).public == key.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    """A private key that a group or everybody may read or write is not used."""
    path = tmp_path / "feed.key"
    PrivateKey.create(path)
    path.chmod(mode)
    with pytest.raises(NotAllowed, match=f"others may read \\(mode {mode:03o}\\): chmod 600"):
        PrivateKey.load(path)


def test_what_is_no_private_key_is_refused(tmp_path: Path) -> None:
    """Text, and a key of another kind, are told apart from one that can sign."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import x25519

    path = tmp_path / "feed.key"
    path.write_bytes(b"hello")
    path.chmod(0o600)
    with pytest.raises(InvalidParameter, match="no private key in PEM"):
        PrivateKey.load(path)
    other = x25519.X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(other)
    with pytest.raises(InvalidParameter, match="not of Ed25519"):
        PrivateKey.load(path)


def test_public_keys_are_text(tmp_path: Path) -> None:
    """A public key is read back from its text, and from a file of such lines."""
    keys = [PrivateKey.create(tmp_path / name).public for name in ("a", "b")]
    assert PublicKey.parse(str(keys[0])) == keys[0]
    path = tmp_path / "trusted"
    path.write_text(f"# ours\n\n{keys[0]}\n  {keys[1]}\n")
    assert PublicKey.read(path) == keys
    path.write_text("# none\n")
    with pytest.raises(InvalidParameter, match="has no public key"):
        PublicKey.read(path)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AAAA", "A" * 44, "ed25519:" + "?" * 44])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    """A key without its prefix, too short, or not in base64 is an error that says the form."""
    with pytest.raises(InvalidParameter, match="must be ed25519: and 44 characters"):
        PublicKey.parse(text)


def test_a_signature_is_of_one_key_over_these_bytes(tmp_path: Path) -> None:
    """It holds for nothing else; a public key that is no point of the curve verifies nothing."""
    key, other = (PrivateKey.create(tmp_path / name) for name in ("a", "b"))
    signature = key.sign(b"message")
    assert key.public.verifies(signature, b"message")
    assert not key.public.verifies(signature, b"massage")
    assert not other.public.verifies(signature, b"message")
    assert not PublicKey(b"\xff" * 32).verifies(signature, b"message")


def test_without_cryptography_the_extra_is_named(tmp_path: Path) -> None:
    """The package is imported when it is needed; without it the error says what to install."""
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from bloomery import feeds\n"
        "assert feeds.url_key('http://a.example/') == 'a.example/'\n"
        "try:\n    feeds.PrivateKey.create('k')\n"
        "except ImportError as why:\n    print(why)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=tmp_path
    )
    assert done.stdout.decode().strip() == (
        "a signed feed needs cryptography: pip install 'bloomery[feeds]'"
    )
