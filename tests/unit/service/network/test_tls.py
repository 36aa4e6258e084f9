"""A certificate and its key: what is taken, what is refused and why, and what stays when new ones
are no good."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.network.tls import Tls, load
from unit.service.certificates import Pairs

NOW = datetime.now(timezone.utc)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def _chain(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return Pairs(tmp_path_factory.mktemp("chain"))


@pytest.fixture
def pairs(_chain: Pairs, tmp_path: Path) -> Pairs:
    """A chain that writes into the test's own folder."""
    _chain.folder = tmp_path
    return _chain


class Told(list[tuple[str, str]]):
    """What would go to the operator: (level, text)."""

    def __call__(self, text: str, level: str = "info", **fields: object) -> None:
        self.append((level, text))


def serial(tls: Tls, pairs: Pairs, name: str | None = "localhost") -> str:
    """The number of the certificate that a client which trusts the root is shown now."""
    client = pairs.client()
    client.check_hostname = name is not None
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        tls.context.wrap_bio(there, back, server_side=True),
    ]
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown: Any = ends[0].getpeercert()
    return str(shown["serialNumber"])


def test_dates(pairs: Pairs) -> None:
    """The dates are those of the certificate, whether it is valid now or not."""
    cert, key = pairs.make("one", not_before=NOW - DAY, not_after=NOW + 30 * DAY)
    found = load(cert, key)
    assert found.expires == int((NOW + 30 * DAY).timestamp())
    assert found.begins == int((NOW - DAY).timestamp())
    assert found.trouble(time.time()) is None
    old = load(*pairs.make("old", not_before=NOW - 9 * DAY, not_after=NOW - DAY))
    assert "has expired" in str(old.trouble(time.time()))
    early = load(*pairs.make("early", not_before=NOW + DAY, not_after=NOW + 9 * DAY))
    assert "not valid before" in str(early.trouble(time.time()))


def test_protocols(pairs: Pairs) -> None:
    """TLS 1.2 and 1.3 with forward secrecy, and nothing older."""
    context = load(*pairs.make("one")).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    for cipher in context.get_ciphers():
        assert cipher["name"].startswith(("TLS_", "ECDHE-")), cipher["name"]


@pytest.mark.parametrize(
    "case", ["other key", "no certificate", "empty", "no file", "encrypted", "folder"]
)
def test_pairs_that_are_none(pairs: Pairs, case: str) -> None:
    """Each way of being wrong is told with the file and what is right; nothing asks for a password
    at a terminal."""
    cert, key = pairs.make("one")
    other = pairs.make("two")
    if case == "other key":
        given, said = (cert, other[1]), "which is not the key of"
    elif case == "no certificate":
        given, said = (key, key), "must be a certificate and its key in PEM"
    elif case == "empty":
        Path(cert).write_bytes(b"")
        given, said = (cert, key), "must be a certificate and its key in PEM"
    elif case == "no file":
        given, said = (cert, f"{key}.none"), "must be a file that can be read: No such file"
    elif case == "folder":
        given, said = (str(pairs.folder), key), "must be a file that can be read"
    else:
        locked = f"{key}.locked"
        encrypt = ["openssl", "pkey", "-aes128", "-passout", "pass:hello1", "-in", key]
        subprocess.run([*encrypt, "-out", locked], check=True, capture_output=True)
        given, said = (cert, locked), "tls-key is encrypted, must be without a password"
    with pytest.raises(errors.InvalidParameter, match=said):
        load(*given)


def test_a_new_pair_is_shown_at_once(pairs: Pairs) -> None:
    """When both files have changed, clients are shown the new certificate, with or without naming
    a host; the door's context stays the same one."""
    paths, told = pairs.make("server"), Told()
    tls = Tls(*paths, told)
    context, first = tls.context, serial(tls, pairs)
    pairs.make("server", not_after=NOW + 90 * DAY)
    assert serial(tls, pairs) == first  # nobody has looked yet
    tls.reload_if_changed()
    second = serial(tls, pairs)
    assert second != first
    assert serial(tls, pairs, name=None) == second
    assert tls.expires == int((NOW + 90 * DAY).timestamp())
    assert tls.context is context
    assert told == [("info", "a new certificate")]
    tls.reload_if_changed()
    assert len(told) == 1  # nothing has changed


@pytest.mark.parametrize("case", ["key late", "half", "gone", "expired", "no date"])
def test_a_pair_that_is_no_good_changes_nothing(pairs: Pairs, case: str) -> None:
    """A key that is late, half a file, no file, an expired certificate, or a chain with a damaged
    date: the old one stays, that is said once, and a good pair is taken afterwards."""
    (cert, key), told = pairs.make("server"), Told()
    tls = Tls(cert, key, told)
    first = serial(tls, pairs)
    fresh = pairs.make("fresh")
    if case == "key late":
        shutil.copy(fresh[0], cert)
    elif case == "half":
        whole = Path(fresh[0]).read_bytes()
        Path(cert).write_bytes(whole[: len(whole) // 3])
    elif case == "gone":
        os.unlink(cert)
    elif case == "no date":
        own, _, signer = Path(cert).read_text().partition("-----END CERTIFICATE-----\n")
        der = ssl.PEM_cert_to_DER_cert(signer).replace(b"000101000000Z", b"000101009999Z")
        damaged = ssl.DER_cert_to_PEM_cert(der)
        Path(cert).write_text(f"{own}-----END CERTIFICATE-----\n{damaged}")
    else:
        pairs.make("server", not_before=NOW - 9 * DAY, not_after=NOW - DAY)
    for _ in range(3):
        tls.reload_if_changed()
    assert serial(tls, pairs) == first
    assert [level for level, _ in told] == ["error"]
    assert "the certificate stays as it is" in told[0][1]
    shutil.copy(fresh[0], cert)
    shutil.copy(fresh[1], key)
    tls.reload_if_changed()
    assert serial(tls, pairs) != first


def test_when_asked_it_looks_whether_or_not_anything_changed(pairs: Pairs) -> None:
    """SIGHUP takes the files again even if they seem to be the same."""
    told = Told()
    tls = Tls(*pairs.make("server"), told)
    tls.reload_if_changed(always=True)
    assert told == [("info", "a new certificate")]


def test_warnings_before_it_expires(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 14 days before its end on it is told once a day, and as an error when it has come."""
    told, clock = Told(), [time.time()]
    monkeypatch.setattr("bloomery.service.network.tls.time.time", lambda: clock[0])
    tls = Tls(*pairs.make("server", not_after=NOW + 20 * DAY), told)
    for _ in range(24 * 22):
        clock[0] += 3600
        tls.reload_if_changed()
    warned = [text for level, text in told if level == "warning"]
    assert len(warned) == 14
    assert "expires in 13 days" in warned[0]
    assert "expires in 0 days" in warned[-1]
    failed = [text for level, text in told if level == "error"]
    assert len(failed) in (2, 3)
    assert all("has expired" in text for text in failed)
