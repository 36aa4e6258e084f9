"""`library`: what README says of the library: a million keys, every peer, lists and arrays, all in
one run of some minutes, so that every figure there is beside one of the same minutes."""

from __future__ import annotations

from benchmarks.library import batch, peers
from benchmarks.settings import Record, Settings


class _Million(Settings):
    """A million keys alone."""

    @property
    def capacities(self) -> list[int]:
        return super().capacities[:1]

    def rounds_at(self, error_rate: float) -> int:
        """At 0.1% bits a key and the observed rate are shown, no times."""
        return self.rounds if error_rate == self.error_rates[0] else 1


class _OneRate(_Million):
    """One key at a time costs at 0.1% what it costs at 1%; bits a key are of the batches."""

    @property
    def error_rates(self) -> list[float]:
        return super().error_rates[:1]

    @property
    def kinds_of_all(self) -> tuple[str, ...]:
        """README has every peer for these; of 16-byte keys ours and its rival."""
        return ("str", "int")


def run(settings: Settings) -> list[Record]:
    singly = peers.run(_OneRate(settings.quick, settings.scale))
    whole = batch.run(_Million(settings.quick, settings.scale))
    return [{"table": "peers", **r} for r in singly] + [{"table": "batch", **r} for r in whole]


def render(records: list[Record]) -> str:
    tables = {"peers": peers, "batch": batch}
    return "\n\n".join(
        module.render([r for r in records if r["table"] == name]) for name, module in tables.items()
    )
