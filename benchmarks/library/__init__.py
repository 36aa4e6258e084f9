"""`library`: what README says of the library: a million keys, every peer, lists and arrays, all in
one run of some minutes, so that every figure there is beside one of the same minutes."""

from __future__ import annotations

from benchmarks.library import batch, peers
from benchmarks.settings import Record, Settings


class _Million(Settings):
    """A full run's rounds, at a million keys alone."""

    @property
    def capacities(self) -> list[int]:
        return super().capacities[:1]


class _OneRate(_Million):
    """One key at a time costs at 0.1% what it costs at 1%; bits a key are of the batches."""

    @property
    def error_rates(self) -> list[float]:
        return super().error_rates[:1]


def run(settings: Settings) -> list[Record]:
    singly = peers.run(_OneRate(settings.quick, settings.scale))
    whole = batch.run(_Million(settings.quick, settings.scale))
    return [{"table": "peers", **r} for r in singly] + [{"table": "batch", **r} for r in whole]


def render(records: list[Record]) -> str:
    tables = {"peers": peers, "batch": batch}
    return "\n\n".join(
        module.render([r for r in records if r["table"] == name]) for name, module in tables.items()
    )
