"""The settings of a server: given at the start (`configuration.py`: file, environment, flags), some
of them changed by CONFIG SET while it runs.

A field of `Settings` is a setting: its name with dashes is the name in the file, in CONFIG and in
`--set`; in the environment it is BLOOMERY_ and the name in capitals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from bloomery import errors
from bloomery.service.config import machine, values


def _set(
    default: Any,
    check: Callable[[str], Any],
    live: bool = True,
    *,
    reloads: bool = False,
    secret: bool = False,
    path: bool = False,
) -> Any:
    """`live`: CONFIG SET changes it. `reloads`: SIGHUP does, from what the operator wrote, also if
    no client may. `secret`: shown to nobody, and may be given as NAME-file, a file that has it.
    `path`: in a configuration file it is relative to that file's folder."""
    metadata = {"check": check, "live": live, "secret": secret, "path": path}
    metadata["reloads"] = live or reloads
    return field(default=default, metadata=metadata, repr=not secret)


HIDDEN = "***"
_COUNT = values.between(1, 1 << 30)
_PORT = values.between(0, 65535)


@dataclass
class Settings:
    """Every setting, with its default. CONFIG names have dashes for underscores."""

    data: str = _set("bloomery-data", values.line, live=False, path=True)
    host: str = _set("127.0.0.1", values.host, live=False)
    resp_port: int = _set(6380, _PORT, live=False)
    http_port: int = _set(8100, _PORT, live=False)
    http_hosts: str = _set("", values.hosts)  # names, beside host's, that it is asked by
    dashboard: bool = _set(True, values.yes_no)  # the pages at /
    session_seconds: int = _set(12 * 3600, values.between(1, 1 << 31))  # of a login on a page
    registry: str = _set("", values.line, live=False, secret=True)  # a URL; else in `data`
    # A URL of Redis, where the filters are; without one they are in `data`.
    store: str = _set("", values.line, live=False, secret=True)
    store_prefix: str = _set("bloomery", values.prefix, live=False)
    store_cluster: str = _set("", values.cluster, live=False)  # the name that the log has
    store_consistency: str = _set("local", values.one_of("local", "strong"))
    store_min_replicas: int = _set(0, values.between(0, 100), live=False)
    store_max_lag_ms: int = _set(5000, values.between(500, 3_600_000), live=False)
    store_timeout_ms: int = _set(2000, values.between(50, 60_000), live=False)
    store_stream_bytes: int = _set(64 << 20, values.size(1 << 16, 1 << 40), live=False)
    store_replay_seconds: int = _set(60, values.between(1, 3600), live=False)
    store_bootstrap_seconds: float = _set(5.0, values.between(0.1, 3600, float), live=False)
    tls_cert: str = _set("", values.line, live=False, path=True)
    tls_key: str = _set("", values.line, live=False, path=True)
    tls_handshake_seconds: int = _set(10, values.between(1, 3600), live=False)
    insecure: bool = _set(False, values.yes_no, live=False)
    log_format: str = _set("text", values.one_of("text", "json"), live=False)
    log_level: str = _set("info", values.one_of("debug", "info", "warning", "error"))
    bf_layout: str = _set("bloomery", values.one_of("bloomery", "redisbloom"))
    bf_error_rate: float = _set(0.01, values.rate)
    bf_initial_size: int = _set(100, _COUNT)
    bf_expansion_factor: int = _set(2, values.between(0, 32768))
    cf_bucket_size: int = _set(2, values.between(1, 255))
    cf_initial_size: int = _set(1024, _COUNT)
    cf_max_iterations: int = _set(20, values.between(1, 65535))
    cf_expansion_factor: int = _set(1, values.between(0, 32768))
    cf_max_expansions: int = _set(32, values.between(1, 65536))
    # Of all filters; 0: no limit.
    maxmemory: int = _set(machine.for_filters(), values.size(0, 1 << 50))
    # Of one filter, as valkey-bloom's bf.bloom-memory-usage-limit; 0: no limit.
    bytes_per_filter: int = _set(0, values.size(0, 1 << 50))
    max_filters: int = _set(1_000_000, _COUNT)
    max_capacity: int = _set(1 << 40, values.between(1, 1 << 40))
    # Threads that serve the Redis protocol. 0 starts one for each core that the process may use.
    threads: int = _set(0, values.between(0, 256), live=False)
    maxclients: int = _set(10_000, values.between(1, 1_000_000))
    timeout: int = _set(0, values.between(0, 1 << 31))  # seconds without a command; 0: none
    login_seconds: int = _set(30, values.between(1, 1 << 31))  # to log in
    max_arguments: int = _set(1 << 20, values.between(8, 1 << 24), live=False)
    proto_max_bulk_len: int = _set(512 << 20, values.size(1 << 10, 1 << 30), live=False)
    max_request_bytes: int = _set(32 << 20, values.size(1 << 10, 1 << 31), live=False)
    # What all clients have sent and is not yet done.
    max_input_bytes: int = _set(64 << 20, values.size(1 << 20, 1 << 40))
    request_seconds: int = _set(60, values.between(1, 1 << 31))  # for a request that has begun
    # Microseconds that a command takes before the slow log has it; -1: none.
    slowlog_log_slower_than: int = _set(10_000, values.between(-1, 1 << 40))
    slowlog_max_len: int = _set(128, values.between(0, 10_000))
    client_output_limit: int = _set(64 << 20, values.size(1 << 16, 1 << 40))
    slow_client_seconds: int = _set(60, values.between(1, 1 << 31))
    max_lookups: int = _set(1000, values.between(1, 1_000_000))  # that wait for their sources
    http_max_answers: int = _set(64 << 20, values.between(1, 1 << 32))  # to the keys of one stream
    http_maxclients: int = _set(10_000, values.between(1, 1_000_000))
    http_header_seconds: int = _set(10, values.between(1, 3600))  # for the head of a request
    http_body_seconds: int = _set(30, values.between(1, 3600))
    http_max_body_bytes: int = _set(16 << 20, values.size(1 << 10, 1 << 30))
    drain_seconds: int = _set(0, values.between(0, 3600))  # from not ready to closed ports
    fsync: str = _set("everysec", values.one_of("always", "everysec", "never"), live=False)
    snapshot_seconds: int = _set(3600, values.between(0, 1 << 31))  # 0: only when asked
    # A log this long calls for a snapshot.
    snapshot_log_bytes: int = _set(256 << 20, values.size(1 << 16, 1 << 50), live=False)
    sample_seconds: int = _set(5, values.between(0, 86400))  # between samples of a filter; 0: none
    sample_keep: int = _set(3600, values.keep)  # seconds; 0: not written
    sample_keep_minutes: int = _set(86400, values.keep)
    sample_keep_hours: int = _set(90 * 86400, values.keep)
    metrics_filters: int = _set(1000, values.between(0, 1_000_000))  # shown one by one
    # It may have a token in it.
    webhook_url: str = _set("", values.url, live=False, reloads=True, secret=True)
    webhook_secret: str = _set("", values.secret, live=False, reloads=True, secret=True)

    def names(self) -> list[str]:
        """Return the names as CONFIG has them."""
        return list(_FIELDS)

    def get(self, name: str) -> str:
        """Return a value as CONFIG GET shows it."""
        item = _FIELDS[plain(name)]
        value = getattr(self, item.name)
        if item.metadata["secret"] and value:
            return HIDDEN
        if isinstance(value, bool):
            return "yes" if value else "no"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def set(self, name: str, text: str, *, running: bool = True) -> None:
        """Set a value from its text; InvalidParameter says what is right."""
        item = find(name)
        if running and not item.metadata["live"]:
            when = "in the configuration" if item.metadata["reloads"] else "when the server starts"
            raise errors.InvalidParameter(f"{name} can only be set {when}")
        check = item.metadata["check"]
        try:
            value = check(text)
        except (ValueError, OverflowError):
            given = HIDDEN if item.metadata["secret"] else repr(text[:60])
            raise errors.InvalidParameter(
                f"{name} is {given}, {check.__doc__ or 'must be a number'}"
            ) from None
        setattr(self, item.name, value)

    def secrets(self) -> list[str]:
        """Return the values that nobody is to see."""
        held = (getattr(self, item.name) for item in fields(self) if item.metadata["secret"])
        return [value for value in held if value]

    def conflicts(self) -> list[tuple[str, str]]:
        """Return settings that contradict each other: the name of one of them, and why."""
        conflicts = []
        least = 2 * self.cf_bucket_size
        if self.cf_initial_size < least:
            conflicts.append(
                (
                    "cf-initial-size",
                    f"cf-initial-size is {self.cf_initial_size}, must be in the range "
                    f"[{least}, {1 << 30}]: at least 2 * cf-bucket-size",
                )
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            given, other = ("tls-cert", "tls-key") if self.tls_cert else ("tls-key", "tls-cert")
            conflicts.append(
                (given, f"{given} is set and {other} is not, must both be, or neither")
            )
        if self.webhook_url and not self.webhook_secret:
            conflicts.append(
                (
                    "webhook-url",
                    "webhook-url is set and webhook-secret is not: alerts are signed with it; put "
                    "one into a file (webhook-secret-file) or into BLOOMERY_WEBHOOK_SECRET",
                )
            )
        if self.resp_port == self.http_port != 0:
            conflicts.append(("http-port", f"http-port is {self.http_port}, and so is resp-port"))
        return conflicts


_FIELDS: dict[str, Field[Any]] = {item.name.replace("_", "-"): item for item in fields(Settings)}


def plain(name: str) -> str:
    """Return a name as CONFIG has it."""
    return name.lower().replace("_", "-")


def find(name: str) -> Field[Any]:
    """Return the field of a name, written with dashes or underscores; InvalidParameter for a wrong
    one names those that are like it."""
    item = _FIELDS.get(plain(name))
    if item is None:
        raise errors.InvalidParameter(f"there is no setting named {name[:60]!r}{like(name)}")
    return item


def secret_in_file(name: str) -> str | None:
    """Return the secret setting that NAME-file is for, if it is one."""
    secret = plain(name).removesuffix("-file")
    known = secret in _FIELDS and plain(name) not in _FIELDS
    return secret if known and _FIELDS[secret].metadata["secret"] else None


def like(name: str, likeness: float = 0.6) -> str:
    """Return "; did you mean …?" for a name that is nearly one of a setting's, else nothing."""
    files = [f"{name}-file" for name in _FIELDS if secret_in_file(f"{name}-file")]
    near = get_close_matches(plain(name[:60]), [*_FIELDS, *files], 3, likeness)
    return f"; did you mean {' or '.join(near)}?" if near else ""
