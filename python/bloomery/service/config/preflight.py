"""Checks, without starting a server, what could keep one with this configuration from starting."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import tempfile
import time
from pathlib import Path

from bloomery import errors
from bloomery.integrations.redis.wire.link import Link
from bloomery.service.access.shared_users import user_source
from bloomery.service.config.configuration import Configuration
from bloomery.service.durability import quarantine
from bloomery.service.durability.control import ControlFile
from bloomery.service.lookup import source
from bloomery.service.network import binding, tls
from bloomery.service.registry.registry import Registry


def examine(config: Configuration) -> None:
    """Add to the problems and warnings of a configuration what is wrong around it. Nothing is made
    or changed."""
    running = _is_running(Path(config.settings.data))
    if running:
        config.warnings.append(f"{config.settings.data}: a server is running on this folder")
    else:
        _folder(config)
    for check in (_binding, _certificate, _registry, _store, _sources):
        try:
            check(config)
        except NotADirectoryError:  # the data folder: said already
            continue
        except OSError as problem:
            config.problems.append(f"{problem.filename}: {problem.strerror}")
        except errors.BloomeryError as problem:
            config.problems.append(str(problem))
    _ports(config, running)


def _binding(config: Configuration) -> None:
    bound = binding.addresses(config.settings.host)
    try:
        there = bool(user_source(config.settings).load())
    except (errors.StoreUnavailable, errors.InvalidParameter):
        if not config.settings.store:
            raise
        return  # `_store` tells that it is away, or its URL none
    config.problems += binding.check(config.settings, bound, users=there)


def _certificate(config: Configuration) -> None:
    settings = config.settings
    if not settings.tls_cert or not settings.tls_key:
        return
    now, certificate = time.time(), tls.load(settings.tls_cert, settings.tls_key)
    if trouble := certificate.trouble(now):
        config.problems.append(f"tls-cert is {settings.tls_cert}, which {trouble}")
    elif certificate.expires - now < tls.WARN_SECONDS:
        days = int((certificate.expires - now) / 86_400)
        config.warnings.append(f"tls-cert is {settings.tls_cert}, which expires in {days} days")
    if os.stat(settings.tls_key).st_mode & 0o077:
        config.warnings.append(
            f"tls-key is {settings.tls_key}, which others can read: chmod 600 {settings.tls_key}"
        )


def _registry(config: Configuration) -> None:
    if config.settings.registry:
        Registry(config.settings.registry, "").close()


def _store(config: Configuration) -> None:
    if not config.settings.store:
        return
    try:
        link = Link(config.settings.store, timeout=config.settings.store_timeout_ms / 1000)
        with contextlib.closing(link):
            link.identity()
    except errors.BloomeryError as problem:
        config.problems.append(f"store: {problem}")


def _sources(config: Configuration) -> None:
    for settings in config.sources.values():
        try:
            source.open_source(settings).close()
        except errors.BloomeryError as problem:
            config.problems.append(f"sources.{settings.name}: {problem}")


def _ports(config: Configuration, running: bool) -> None:
    settings = config.settings
    with contextlib.suppress(errors.InvalidParameter):  # said already
        for name in ("resp-port", "http-port"):
            port = int(settings.get(name))
            for address in binding.addresses(settings.host) if port else []:
                problem = _bound(address, port)
                if problem is not None and not (running and problem.errno == errno.EADDRINUSE):
                    config.problems.append(
                        f"{name} is {port}, at {address}: {problem.strerror or problem}"
                    )


def _bound(address: str, port: int) -> OSError | None:
    """Return why this port cannot be bound; None: it can."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as asyncio does
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind((address, port))
            tried.listen(1)
    except OSError as problem:
        return problem
    return None


def _is_running(data: Path) -> bool:
    """Return whether a server uses this data folder; neither folder nor lock is made."""
    try:
        with open(data / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _folder(config: Configuration) -> None:
    data = Path(config.settings.data)
    there = next(folder for folder in (data, *data.parents) if os.path.lexists(folder))
    try:
        # A file without a name: gone when it is closed, whatever happens.
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as problem:
        config.problems.append(
            f"data is {data}, must be a folder that can be written: {there}: {problem.strerror}"
        )
        return
    try:
        ControlFile.read(data)
    except (errors.CorruptData, OSError) as wrong:  # or of a newer version
        config.problems.append(str(wrong))
    config.warnings += [
        f"{damaged.folder}: damaged files, which were set aside"
        for damaged in quarantine.find(data)
    ]
