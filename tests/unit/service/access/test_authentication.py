"""Logging in, past the doors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.access.authentication import Access
from bloomery.service.access.permissions import Role
from bloomery.service.access.users import Account, UserFile, changing, hash_password

PASSWORD = "correct horse battery staple"


@pytest.mark.slow
def test_failures_elsewhere_lock_nobody_out(tmp_path: Path) -> None:
    """While others, at many addresses, try passwords of a user, that user still logs in from where
    it did before, also when its password is looked at anew."""
    with changing(tmp_path) as users:
        users.add(Account("ann", Role.READ, password=hash_password(PASSWORD)))

    async def script() -> None:
        before = asyncio.all_tasks()
        say, note = lambda *_, **__: None, lambda *_: None
        access = Access(UserFile(tmp_path), say, note, remembered=0.0)

        async def log_in(password: str, address: str) -> str:
            return (await access.log_in("ann", password, address, protocol="resp")).user.name

        assert await log_in(PASSWORD, "10.0.0.1") == "ann"
        others = [asyncio.ensure_future(log_in(f"{n}", f"10.0.1.{n}")) for n in range(100)]
        await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(errors.NotLoggedIn):
            await log_in(PASSWORD, "10.0.0.2")
        assert await log_in(PASSWORD, "10.0.0.1") == "ann"
        left = asyncio.all_tasks() - before
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        access.close()

    asyncio.run(asyncio.wait_for(script(), 60))
