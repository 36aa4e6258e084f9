"""Feeds in Chromium: signature, version and expiry are checked; what is refused changes nothing.

The publisher here is written from docs/feeds.md, as the module is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter, ExactSet
from conftest import require
from docs.pages import DOCS, blocks
from golden.make import FOLDER
from integration.browser.conftest import SET_UP

ed25519 = require("cryptography.hazmat.primitives.asymmetric.ed25519")

GOLDEN = FOLDER / "feed"
NOW = 1_800_000_001  # a second after the golden feed was published
START = """([url, trust, now, options]) => {
    window.now = now;
    window.feed = new bloomery.Feed(url, trust, {clock: () => window.now, ...options});
}"""


def signer(number: int) -> Any:
    """A key that everybody knows."""
    return ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


def public(key: Any) -> str:
    """Its public half as text."""
    return f"ed25519:{base64.b64encode(key.public_key().public_bytes_raw()).decode()}"


def sealed(body: bytes, *keys: Any) -> bytes:
    """A manifest's file."""
    lines = [b"bloomery-feed 1"]
    for key in keys:
        name = hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]
        lines.append(b"signature %s %s" % (name.encode(), base64.b64encode(key.sign(body))))
    return b"\n".join([*lines, b"", body])


class Publisher:
    """A feed in a folder of the site, of which everything can be wrong."""

    def __init__(self, folder: Path, key: Any) -> None:
        self.folder, self.key = folder, key
        folder.mkdir()

    def file(self, data: bytes, **more: Any) -> dict[str, Any]:
        """Write a file; what a manifest says of it."""
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / digest[:16]).write_bytes(data)
        return {"name": digest[:16], "size": len(data), "sha256": digest, **more}

    def publish(self, data: bytes, version: int, deltas: Any = (), **changed: Any) -> None:
        """Publish a version; `changed` members are those of the manifest that are not as usual."""
        members = {
            "format": "bloomery-feed/1",
            "feed": "tokens",
            "version": version,
            "published": NOW - 100,
            "expires": NOW + 100,
            "kind": "bloom",
            "full": self.file(data),
            "deltas": list(deltas),
            **changed,
        }
        self.write(sealed(json.dumps(members).encode(), self.key))

    def write(self, manifest: bytes) -> None:
        """Write the manifest's file."""
        (self.folder / "feed.manifest").write_bytes(manifest)


def tokens(*numbers: int) -> bytes:
    """A filter of these tokens."""
    filter = BloomFilter(1000, 1e-6)
    filter.update(f"token-{n}" for n in numbers)
    return filter.to_bytes()


def delta(base: bytes, result: bytes, planes: list[bytes] | None = None) -> bytes:
    """The delta between two files; `planes` in place of the right ones, if they are to be wrong."""
    changed = int.from_bytes(base, "little") ^ int.from_bytes(result, "little")
    places = [i for i in range(8 * len(result)) if changed >> i & 1]
    gaps = [b - a - 1 for a, b in zip([-1, *places], places, strict=False)]
    raw = [bytes(gap >> 8 * plane & 255 for gap in gaps) for plane in range(2)]
    packed = planes if planes is not None else [zlib.compress(plane) for plane in raw]
    head = struct.pack("<8sIIQQQ", b"BLOOMDLT", 1, len(packed), len(base), len(result), len(gaps))
    return b"".join([head, struct.pack(f"<{len(packed)}Q", *map(len, packed)), *packed])


@pytest.fixture
def publisher(site: tuple[Path, str], request: pytest.FixtureRequest) -> Publisher:
    """A feed of this test's own."""
    return Publisher(site[0] / request.node.name, signer(1))


def follow(page: Any, publisher: Publisher, **options: Any) -> None:
    """Begin to follow, as a page does when it is opened."""
    address = f"./{publisher.folder.name}/"
    page.evaluate(START, [address, public(publisher.key), NOW, options])


def update(page: Any) -> Any:
    """What an update did, or the reason why it was refused."""
    return page.evaluate(
        "async () => { try { return await feed.update(); } "
        "catch (problem) { return problem.reason ?? problem.code ?? String(problem); } }"
    )


def holds(page: Any, number: int) -> bool:
    """Whether the copy has a token."""
    return bool(page.evaluate("(n) => feed.contains(`token-${n}`)", number))


@pytest.mark.parametrize(
    ("versions", "by"), [([1, 2, 3], "deltas"), ([1, 3], "deltas"), ([3], "full"), ([2], "full")]
)
def test_the_golden_feed(window: Any, site: tuple[Path, str], versions: list[int], by: str) -> None:
    """Whole, by one delta and by two; what is in the files is what Python put in."""
    folder = site[0] / f"golden-{'-'.join(map(str, versions))}"
    shutil.copytree(GOLDEN, folder)
    shutil.copyfile(GOLDEN / "feed.manifest", folder / "3.manifest")
    trust = (GOLDEN / "public.key").read_text("ascii")
    window.evaluate(START, [f"./{folder.name}", trust, NOW, {"name": "golden"}])
    members = {1: range(990), 2: range(1000), 3: range(5, 1005)}
    for version in versions:
        shutil.copyfile(folder / f"{version}.manifest", folder / "feed.manifest")
        done = update(window)
        assert done["version"] == version
        there = "(ns) => ns.map((n) => feed.contains(`token-${n}`))"
        assert all(window.evaluate(there, list(members[version])))
        assert sum(window.evaluate(there, list(range(5000, 5200)))) <= 3
    assert done["by"] == by
    assert update(window)["by"] == "nothing"
    assert not window.evaluate("() => feed.stale")


def broken(publisher: Publisher, how: str) -> str:
    """Break a feed of version 2 whose version 1 was accepted; the reason that is to be given."""
    manifest = publisher.folder / "feed.manifest"
    new = tokens(1, 2)
    if how == "forged":
        publisher.publish(new, 2)
        data = bytearray(manifest.read_bytes())
        data[data.index(b'"version": 2') + 11] = ord("9")
        manifest.write_bytes(data)
        return "signature"
    if how == "stranger":
        publisher.key, ours = signer(2), publisher.key
        publisher.publish(new, 2)
        publisher.key = ours
        return "signature"
    if how == "cut off":
        publisher.publish(new, 2)
        manifest.write_bytes(manifest.read_bytes()[:90])
        return "malformed"
    if how == "rolled back":
        publisher.publish(tokens(1), 0 + 1, published=NOW - 50)  # another version 1
        return "forked"
    if how == "expired":
        publisher.publish(new, 2, expires=NOW)
        return "expired"
    if how == "another feed":
        publisher.publish(new, 2, feed="others")
        return "other-feed"
    if how == "damaged file":
        publisher.publish(new, 2)
        (publisher.folder / publisher.file(new)["name"]).write_bytes(new[:-1] + b"\x01")
        return "damaged"
    if how == "short file":
        publisher.publish(new, 2)
        (publisher.folder / publisher.file(new)["name"]).write_bytes(new[:-64])
        return "damaged"
    if how == "no filter":
        publisher.publish(b"BLOOMERY, but not one", 2)
        return "damaged"
    if how == "too large":
        publisher.publish(new, 2, full={**publisher.file(new), "size": 2**40})
        return "too-large"
    if how == "twice":
        body = b'{"format": "bloomery-feed/1", "feed": "tokens", "feed": "tokens"}'
        publisher.write(sealed(body, publisher.key))
        return "malformed"
    assert how == "no file"
    publisher.publish(new, 2)
    (publisher.folder / publisher.file(new)["name"]).unlink()
    return "feed-unavailable"


@pytest.mark.parametrize(
    "how",
    [
        *("forged", "stranger", "cut off", "rolled back", "expired", "another feed"),
        *("damaged file", "short file", "no filter", "too large", "twice", "no file"),
    ],
)
def test_a_wrong_feed_is_refused_and_the_copy_answers(
    window: Any, publisher: Publisher, how: str
) -> None:
    """Each way of being wrong has its reason; the old copy goes on, and a right feed is taken."""
    follow(window, publisher)
    publisher.publish(tokens(1), 1)
    assert update(window)["by"] == "full"
    reason = broken(publisher, how)
    assert update(window) == reason
    assert holds(window, 1)
    assert not holds(window, 2)
    publisher.publish(tokens(1, 2), 3)
    assert update(window)["version"] == 3
    assert holds(window, 2)


def test_an_older_version_is_refused_by_the_next_page_too(
    window: Any, publisher: Publisher
) -> None:
    """The highest version is kept in the browser: a page that is opened anew knows it."""
    follow(window, publisher)
    publisher.publish(tokens(1), 7)
    assert update(window)["version"] == 7
    window.reload()
    window.evaluate(SET_UP)
    follow(window, publisher)
    publisher.publish(tokens(2), 6)
    assert update(window) == "rolled-back"
    assert holds(window, 1)


def test_a_version_whose_files_never_came_counts_too(window: Any, publisher: Publisher) -> None:
    """A version that was accepted is seen, even if the page was closed before its file came."""
    follow(window, publisher)
    publisher.publish(tokens(1), 5)
    (publisher.folder / publisher.file(tokens(1))["name"]).unlink()
    assert update(window) == "feed-unavailable"
    window.reload()
    window.evaluate(SET_UP)
    follow(window, publisher)
    publisher.publish(tokens(1), 4)
    assert update(window) == "rolled-back"
    assert not window.evaluate("() => feed.load()")


def test_it_answers_offline(window: Any, publisher: Publisher) -> None:
    """A copy of an earlier visit answers without the network, and is stale after its time."""
    follow(window, publisher)
    publisher.publish(tokens(1), 1)
    update(window)
    window.reload()
    window.evaluate(SET_UP)
    window.context.set_offline(True)
    follow(window, publisher)
    assert window.evaluate("() => feed.load()")
    assert (holds(window, 1), holds(window, 2)) == (True, False)
    assert update(window) == "feed-unavailable"
    assert not window.evaluate("() => feed.stale")
    window.evaluate("() => { window.now += 100 }")
    assert window.evaluate("() => feed.stale")
    assert holds(window, 1)


def test_a_copy_is_dropped_with_the_key_that_signed_it(window: Any, publisher: Publisher) -> None:
    """Whoever is trusted no longer has no copy that answers."""
    follow(window, publisher)
    publisher.publish(tokens(1), 1)
    update(window)
    window.evaluate(START, [f"./{publisher.folder.name}/", public(signer(2)), NOW, {}])
    assert not window.evaluate("() => feed.load()")
    assert "no copy" in window.evaluate("() => refusal(() => feed.contains(1))")[3]


def test_keys_are_replaced_without_a_gap(window: Any, publisher: Publisher) -> None:
    """One signature of a trusted key among several is enough."""
    publisher.publish(tokens(1), 1)
    body = (publisher.folder / "feed.manifest").read_bytes().partition(b"\n\n")[2]
    publisher.write(sealed(body, signer(3), publisher.key))
    follow(window, publisher)
    assert update(window)["by"] == "full"


BASE, RESULT = tokens(1), tokens(1, 2)


@pytest.mark.parametrize(
    "planes",
    [
        [],
        [b"noise", b"noise"],
        [zlib.compress(b"\xff" * 3000)] * 2,
        [zlib.compress(bytes(10**7))] * 2,
        [zlib.compress(b"\xff" * 36)] * 7,
    ],
    ids=["none", "noise", "other length", "bomb", "beyond"],
)
def test_a_wrong_delta_costs_a_full_file(
    window: Any, publisher: Publisher, planes: list[bytes]
) -> None:
    """A delta that is signed but does not fit is left, and the full file fetched."""
    assert delta(BASE, RESULT)
    links = {"base": hashlib.sha256(BASE).hexdigest(), "result_size": len(RESULT)}
    links["result"] = hashlib.sha256(RESULT).hexdigest()
    follow(window, publisher)
    publisher.publish(BASE, 1)
    update(window)
    publisher.publish(RESULT, 2, [publisher.file(delta(BASE, RESULT, planes or [b""]), **links)])
    done = update(window)
    assert (done["version"], done["by"]) == (2, "full")
    assert holds(window, 2)


def test_a_right_delta_is_taken(window: Any, publisher: Publisher) -> None:
    """The same way with planes that are right: the delta, and no full file."""
    links = {"base": hashlib.sha256(BASE).hexdigest(), "result_size": len(RESULT)}
    links["result"] = hashlib.sha256(RESULT).hexdigest()
    follow(window, publisher)
    publisher.publish(BASE, 1)
    update(window)
    made = delta(BASE, RESULT)
    publisher.publish(RESULT, 2, [publisher.file(made, **links)])
    (publisher.folder / publisher.file(RESULT)["name"]).unlink()
    assert update(window) == {"version": 2, "by": "deltas", "fetched": len(made)}
    assert holds(window, 2)


def test_a_feed_of_an_exact_set(window: Any, publisher: Publisher) -> None:
    """Known tokens are told without error from a feed too."""
    revoked, valid = range(50), range(50, 3000)
    exact = ExactSet.build([f"token-{n}" for n in revoked], [f"token-{n}" for n in valid])
    publisher.publish(exact.to_bytes(), 1, kind="exact")
    follow(window, publisher)
    assert update(window)["by"] == "full"
    answers = window.evaluate(
        "() => feed.containsMany(Array.from({length: 3000}, (_, n) => `token-${n}`))"
    )
    assert answers == [n in revoked for n in range(3000)]


def test_every_damage_of_a_manifest_is_refused(window: Any, publisher: Publisher) -> None:
    """Cut off after any byte, and with any byte changed, it is not taken."""
    publisher.publish(tokens(1), 1)
    data = (publisher.folder / "feed.manifest").read_bytes()
    accepted = window.evaluate(
        """async ([file, trust, now]) => {
            const whole = bytes(file), accepted = [];
            const tried = async (manifest, what) => {
                const answer = async () => new Response(manifest);
                const store = {get() {}, put() { throw new Error("it was taken"); }};
                const options = {store, clock: () => now, fetch: answer};
                const feed = new bloomery.Feed("./nowhere/", trust, options);
                const found = await refusal(() => feed.update());
                if (found[0] !== "FeedRefused") accepted.push([what, ...found]);
            };
            for (let i = 0; i < whole.length; i++) {
                await tried(whole.slice(0, i), `${i} bytes`);
                const changed = whole.slice();
                changed[i] ^= 1 << (i % 7);
                await tried(changed, `byte ${i}`);
            }
            return accepted;
        }""",
        [base64.b64encode(data).decode(), public(publisher.key), NOW],
    )
    assert accepted == []


WRONG: list[Callable[[dict[str, Any]], Any]] = [
    lambda m: m.update(format="bloomery-feed/2"),
    lambda m: m.update(version=0),
    lambda m: m.update(version=1.5),
    lambda m: m.update(version="1"),
    lambda m: m.update(expires=m["published"]),
    lambda m: m.update(feed="../x"),
    lambda m: m.update(kind=5),
    lambda m: m.update(full=[]),
    lambda m: m["full"].update(name="a/b"),
    lambda m: m["full"].update(sha256="x"),
    lambda m: m["full"].update(size=0),
    lambda m: m.update(deltas={}),
    lambda m: m.update(deltas=[{}]),
    lambda m: m.pop("published"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_members_that_are_not_as_they_must_be(page: Any, publisher: Publisher, number: int) -> None:
    """What is signed but no manifest is malformed."""
    publisher.publish(tokens(1), 1)
    members = json.loads((publisher.folder / "feed.manifest").read_bytes().partition(b"\n\n")[2])
    WRONG[number](members)
    publisher.write(sealed(json.dumps(members).encode(), publisher.key))
    follow(page, publisher)
    assert update(page) == "malformed"


def test_what_the_page_of_the_docs_shows(
    window: Any, publisher: Publisher, site: tuple[Path, str]
) -> None:
    """The example of docs/browser.md runs, with a file and a feed of our own."""
    (shown,) = (block.text for block in blocks(DOCS / "browser.md") if block.info == "js")
    publisher.publish(tokens(17), 1)
    ExactSet.build(["token-17"], ["token-18"]).save(site[0] / "revoked.exact")
    for example, ours in (
        ("https://example.org/revoked/", f"./{publisher.folder.name}/"),
        ("ed25519:…", public(publisher.key)),
    ):
        assert example in shown
        shown = shown.replace(example, ours)
    options = f"{{clock: () => {NOW}}}"
    shown = shown.replace(f'"{public(publisher.key)}")', f'"{public(publisher.key)}", {options})')
    shown += "export const answers = [revoked, feed].map((one) => one.contains('token-17'));\n"
    (site[0] / "page.js").write_text(shown, "utf-8")
    assert window.evaluate("async () => (await import('./page.js')).answers") == [True, True]
