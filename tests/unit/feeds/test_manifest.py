"""Manifests: what is signed is read, and nothing else."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import FeedRefused
from bloomery.feeds import PrivateKey
from bloomery.feeds.manifest import DeltaFile, FeedFile, Manifest, compose, seal, unseal
from conftest import require

require("cryptography")

HASHES = ["0" * 64, "1" * 64, "2" * 64]
FULL = FeedFile("3-2222222222222222.bloom", 1000, HASHES[2])
DELTAS = [
    DeltaFile("1-2-a.delta", 400, "a" * 64, HASHES[0], HASHES[1], 1000),
    DeltaFile("2-3-b.delta", 500, "b" * 64, HASHES[1], HASHES[2], 1000),
]


@pytest.fixture
def key(tmp_path: Path) -> PrivateKey:
    """A key to sign with."""
    return PrivateKey.create(tmp_path / "key")


def example(deltas: list[DeltaFile] = DELTAS) -> Manifest:
    """A manifest of version 3."""
    return compose("revoked", 3, 1000, 2000, "bloom", FULL, deltas)


def signed(key: PrivateKey, body: bytes) -> bytes:
    """Any body, signed."""
    line = f"signature {key.public.id} {base64.b64encode(key.sign(body)).decode()}"
    return b"bloomery-feed 1\n" + line.encode() + b"\n\n" + body


def test_what_was_sealed_is_read(key: PrivateKey, tmp_path: Path) -> None:
    """A manifest comes back as it was; any one of several keys that signed it is enough."""
    other = PrivateKey.create(tmp_path / "other")
    data = seal(example(), [other, key])
    for trusted in ([key.public], [other.public], [key.public, other.public]):
        read = unseal(data, trusted)
        assert read == example()
        assert read.body == data.partition(b"\n\n")[2]


def test_the_signed_bytes_are_those_behind_the_empty_line(key: PrivateKey) -> None:
    """As docs/feeds.md says, so that a reader in another language needs no canonical JSON."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    head, _, body = seal(example(), [key]).partition(b"\n\n")
    first, line = head.split(b"\n")
    word, key_id, signature = line.split(b" ")
    assert (first, word, key_id.decode()) == (b"bloomery-feed 1", b"signature", key.public.id)
    public = Ed25519PublicKey.from_public_bytes(key.public.raw)
    public.verify(base64.b64decode(signature), body)
    assert json.loads(body)["format"] == "bloomery-feed/1"


def test_no_byte_can_be_changed(key: PrivateKey) -> None:
    """Whatever byte of a manifest is changed, cut off or added, it is refused."""
    data = seal(example(), [key])
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x04
        for wrong in (bytes(damaged), data[:at]):
            with pytest.raises(FeedRefused) as caught:
                unseal(wrong, [key.public])
            assert caught.value.reason in ("signature", "malformed")
    with pytest.raises(FeedRefused, match="forged, or damaged"):
        unseal(data + b" ", [key.public])


def test_a_signature_of_somebody_else_is_not_enough(key: PrivateKey, tmp_path: Path) -> None:
    """Neither one of a key that is not trusted, nor one under a trusted key's id."""
    other = PrivateKey.create(tmp_path / "other")
    with pytest.raises(FeedRefused, match=f"signed by {other.public.id}, none of which") as why:
        unseal(seal(example(), [other]), [key.public])
    assert why.value.reason == "signature"
    claimed = seal(example(), [other]).replace(other.public.id.encode(), key.public.id.encode())
    with pytest.raises(FeedRefused, match=f"key {key.public.id} does not fit"):
        unseal(claimed, [key.public])


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("format", "bloomery-feed/2"),
        ("feed", ""),
        ("feed", "../x"),
        ("feed", 7),
        ("version", 0),
        ("version", -1),
        ("version", 1.5),
        ("version", True),
        ("version", "3"),
        ("version", 1 << 53),
        ("expires", 1000),
        ("published", -5),
        ("kind", None),
        ("full", None),
        ("full", {"name": "x", "size": 10, "sha256": "A" * 64}),
        ("full", {"name": ".x", "size": 10, "sha256": "a" * 64}),
        ("full", {"name": "a/b", "size": 10, "sha256": "a" * 64}),
        ("full", {"name": "x", "size": 0, "sha256": "a" * 64}),
        ("deltas", None),
        ("deltas", [{}]),
        ("deltas", [{**vars(DELTAS[0])}]),
        ("deltas", [vars(DELTAS[1])] * 65),
    ],
)
def test_a_signed_body_of_another_form_is_refused(key: PrivateKey, member: str, value: Any) -> None:
    """The publisher's own mistakes are not followed either."""
    members = json.loads(example().body)
    assert unseal(signed(key, json.dumps(members).encode()), [key.public]) == example()
    members[member] = value
    with pytest.raises(FeedRefused) as caught:
        unseal(signed(key, json.dumps(members).encode()), [key.public])
    assert caught.value.reason == "malformed"
    members.pop(member)
    with pytest.raises(FeedRefused):
        unseal(signed(key, json.dumps(members).encode()), [key.public])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"format": "bloomery-feed/1", "format": "bloomery-feed/1"}',
        b'{"format": NaN}',
        b"[" * 100_000,
    ],
)
def test_a_signed_body_that_is_no_json_is_refused(key: PrivateKey, body: bytes) -> None:
    """Also JSON that has a member twice, or is too deep to be read."""
    with pytest.raises(FeedRefused):
        unseal(signed(key, body), [key.public])


def test_unknown_members_are_ignored(key: PrivateKey) -> None:
    """A later bloomery may say more."""
    members = {**json.loads(example().body), "later": [1, 2, 3]}
    assert unseal(signed(key, json.dumps(members).encode()), [key.public]) == example()


def test_a_manifest_has_a_largest_size(key: PrivateKey) -> None:
    """It is refused before its signature is looked at."""
    with pytest.raises(FeedRefused, match="more than 1,048,576 bytes") as caught:
        unseal(b"x" * ((1 << 20) + 1), [key.public])
    assert caught.value.reason == "too-large"


def test_the_deltas_from_a_file() -> None:
    """Those from the last that has it as its base, unless the full file is less to fetch."""
    assert example().deltas_from(HASHES[0]) == tuple(DELTAS)
    assert example().deltas_from(HASHES[1]) == tuple(DELTAS[1:])
    assert example().deltas_from(HASHES[2]) == ()
    assert example().deltas_from("f" * 64) == ()
    large = DeltaFile("1-2-a.delta", 500, "a" * 64, HASHES[0], HASHES[1], 1000)
    assert example([large, DELTAS[1]]).deltas_from(HASHES[0]) == ()
    there_and_back = [
        DeltaFile("1-2-a.delta", 10, "a" * 64, HASHES[2], HASHES[1], 1000),
        DeltaFile("2-3-b.delta", 10, "b" * 64, HASHES[1], HASHES[2], 1000),
    ]
    assert example(there_and_back).deltas_from(HASHES[2]) == tuple(there_and_back)
