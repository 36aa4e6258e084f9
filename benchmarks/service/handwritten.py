"""What people do without us: SETBIT and GETBIT in a pipeline, by redis-py; beside BF.MADD by it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from statistics import median

import redis

from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet

AT_ONCE = 1000  # keys of a pipeline
NUM_HASHES = 7
BITS_A_KEY = 9.6

Work = Callable[[list[str]], object]


def positions(key: str, num_bits: int) -> list[int]:
    """Where the bits of a key are, as it is usually written: double hashing."""
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    one, two = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    return [(one + i * two) % num_bits for i in range(NUM_HASHES)]


def by_hand(client: redis.Redis, num_bits: int, ask: bool) -> Work:
    def work(keys: list[str]) -> object:
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            for at in positions(key, num_bits):
                if ask:
                    pipeline.getbit("bits", at)
                else:
                    pipeline.setbit("bits", at, 1)
        bits = pipeline.execute()
        return [all(bits[i : i + NUM_HASHES]) for i in range(0, len(bits), NUM_HASHES)]

    return work


def by_command(client: redis.Redis, command: str) -> Work:
    call: Callable[..., object] = client.execute_command
    return lambda keys: call(command, "seen", *keys)


def run(settings: Settings) -> list[Record]:
    servers.check_tools()
    count = settings.client_keys
    keys = [f"user:{i:012d}" for i in range(count)]
    rates: dict[str, list[float]] = {}
    with (
        servers.scratch() as folder,
        servers.redis(folder) as peer,
        servers.bloomery(folder / "data") as ours,
        redis.Redis(port=peer.port) as theirs,
        redis.Redis(port=ours.port) as client,
    ):
        num_bits = int(count * BITS_A_KEY)
        ways = {
            "SETBIT": by_hand(theirs, num_bits, ask=False),
            "BF.MADD": by_command(client, "BF.MADD"),
            "GETBIT": by_hand(theirs, num_bits, ask=True),
            "BF.MEXISTS": by_command(client, "BF.MEXISTS"),
        }
        for number in range(settings.service_rounds):
            progress.step(f"service: redis-py, round {number + 1} of {settings.service_rounds}")
            theirs.delete("bits")
            client.delete("seen")
            client.execute_command("BF.RESERVE", "seen", 0.01, count)
            for name, work in ways.items():
                with quiet():
                    began = time.perf_counter()
                    for at in range(0, count, AT_ONCE):
                        work(keys[at : at + AT_ONCE])
                    rates.setdefault(name, []).append(count / (time.perf_counter() - began))
    return [
        {
            "table": "redis-py",
            "what": f"{ours_name} beside {NUM_HASHES} {peer_name}",
            "peer_rate": median(rates[peer_name]),
            "rate": median(rates[ours_name]),
            "ratio": median(a / b for a, b in zip(rates[ours_name], rates[peer_name], strict=True)),
        }
        for ours_name, peer_name in (("BF.MADD", "SETBIT"), ("BF.MEXISTS", "GETBIT"))
    ]


def render(records: list[Record]) -> str:
    columns = [Column("what", left=True)]
    columns += [Column(t) for t in ("Redis, by hand: keys/s", "ours: keys/s", "ratio")]
    rows = [
        [r["what"], f"{r['peer_rate']:,.0f}", f"{r['rate']:,.0f}", f"{r['ratio']:.1f}x"]
        for r in records
    ]
    return table(f"By redis-py, {AT_ONCE:,} keys a pipeline, one connection", columns, rows)
