"""Where a server may be reached: others only with users and TLS."""

from __future__ import annotations

import pytest

from bloomery import errors
from bloomery.service.config.settings import Settings
from bloomery.service.network import binding


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.1", False),
    ],
)
def test_loopback(address: str, own: bool) -> None:
    """127.0.0.0/8 and ::1 are this machine's own; all others can be reached from elsewhere."""
    assert binding.is_loopback(address) is own


def test_names_are_resolved() -> None:
    """A name stands for its addresses, each of which counts."""
    assert all(binding.is_loopback(one) for one in binding.addresses("localhost"))
    assert binding.addresses("0.0.0.0") == ["0.0.0.0"]
    assert binding.addresses("::1") == ["::1"]
    for wrong in ("no such host", "999.1.1.1", "a" * 300, "host.invalid"):
        with pytest.raises(errors.InvalidParameter, match="must be a name or an address"):
            binding.addresses(wrong)


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("bound", [["127.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::"]])
def test_the_rule(users: bool, tls: bool, insecure: bool, bound: list[str]) -> None:
    """Loopback alone takes nothing; anything else takes users, and TLS or --insecure."""
    settings = Settings(tls_cert="c" if tls else "", insecure=insecure, data="/srv/d")
    problems = binding.check(settings, bound, users=users)
    reached = bound != ["127.0.0.1"]
    assert any("no users" in one for one in problems) == (reached and not users)
    assert any("no TLS" in one for one in problems) == (reached and not tls and not insecure)
    for problem in problems:  # what to do, to be copied
        assert "--host 127.0.0.1" in problem
        assert "bloomery user add NAME --role admin --data /srv/d" in problem or (
            "--tls-cert FILE --tls-key FILE" in problem and "--insecure" in problem
        )


@pytest.mark.parametrize("host", ["", "*", "a b", "127.0.0.1\n", "\x00"])
def test_hosts_that_are_none(host: str) -> None:
    """What cannot be a host is refused as a setting."""
    with pytest.raises(errors.InvalidParameter, match="must be a host's name or its address"):
        Settings().set("host", host, running=False)


def test_an_address_in_brackets() -> None:
    """IPv6 may be written as in a URL."""
    settings = Settings()
    settings.set("host", "[::1]", running=False)
    assert settings.host == "::1"
