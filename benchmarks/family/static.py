"""The static filter beside the plain one and the peers: built at once, then only asked."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bloomery
from benchmarks.family.contenders import PLAIN
from benchmarks.family.speed import render_kinds, weigh
from benchmarks.keys import Keys, present_and_absent
from benchmarks.library.adapters import Handle, installed
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, progress, quiet, rotated, time_add, time_call, time_in

ERROR_RATE = 1 / 256
"""The peers have 8 or 16 bits a fingerprint, and no other rate."""

Build = Callable[[Any], Handle]


def _ours(keys: Any) -> Handle:
    f = bloomery.StaticFilter.build(keys, ERROR_RATE)
    return Handle(f, f.add, lambda: int(f.nbytes), contains_many=f.contains_many)


def _plain(keys: Any) -> Handle:
    f = bloomery.BloomFilter(len(keys), ERROR_RATE)
    f.update(keys)
    return Handle(f, f.add, lambda: int(f.nbytes), contains_many=f.contains_many)


def _fuse(module: str) -> Build:
    def build(keys: Any) -> Handle:
        f = importlib.import_module(module).Fuse8(len(keys))
        if not f.populate(keys):
            raise RuntimeError(f"{module} could not build a filter of {len(keys):,} keys")
        # pyxorfilter has no `in`.
        contains = None if hasattr(f, "__contains__") else f.contains
        return Handle(f, f.populate, lambda: int(f.size_in_bytes()), contains=contains)

    return build


@dataclass(frozen=True)
class Builder:
    """A contender that is built from all its keys at once."""

    name: str
    module: str
    build: Build
    kind: str = "static"

    @property
    def ours(self) -> bool:
        return self.module == "bloomery"


CONTENDERS = (
    Builder("StaticFilter", "bloomery", _ours),
    Builder(PLAIN, "bloomery", _plain, "plain"),
    Builder("pyfusefilter", "pyfusefilter", _fuse("pyfusefilter")),
    Builder("pyxorfilter", "pyxorfilter", _fuse("pyxorfilter")),
)


def run(settings: Settings) -> list[Record]:
    records: list[Record] = []
    for keys_of in ("str", "int"):
        size = settings.family_timed
        progress.step(f"family: making {size:,} {keys_of} keys")
        records += _measure(settings, *present_and_absent(keys_of, size, size))
    present_and_absent.cache_clear()
    return records


def _measure(settings: Settings, present: Keys, absent: Keys) -> list[Record]:
    builders = [builder for builder in CONTENDERS if installed(builder.module)]
    best = {builder.name: Best() for builder in builders}
    weighed: dict[str, Record] = {}
    for number in range(settings.family_rounds):
        for builder in rotated(builders, number):
            name = builder.name
            if not builder.ours and number >= settings.few_rounds:
                continue
            progress.step(f"family: static, {present.kind}, round {number + 1}: {name}")
            handle = _build(builder, best[name], "bulk_build", present.fresh())
            _ask(handle, best[name], present, absent)
            if name not in weighed:
                weighed[name] = weigh(handle, present, absent, present.count, absent.count)
            if builder.ours and present.kind == "int":
                handle = _build(builder, best[name], "array_build", present.array())
                for label, source in (("array_hit", present), ("array_miss", absent)):
                    keys = source.array()
                    with quiet():
                        asked = time_call(handle.target.contains_many, keys)
                    best[name].note(label, asked, len(keys))
            del handle
    return [
        {
            "table": "static",
            "kind": builder.kind,
            "peer": builder.name,
            "ours": builder.ours,
            "keys_of": present.kind,
            "error_rate": ERROR_RATE,
            "rounds": best[builder.name].passes["hit"],
            "ns": best[builder.name].ns,
            **weighed[builder.name],
        }
        for builder in builders
    ]


def _build(builder: Builder, best: Best, label: str, keys: Any) -> Handle:
    with quiet():
        start = time.perf_counter_ns()
        handle = builder.build(keys)
        best.note(label, time.perf_counter_ns() - start, len(keys))
    return handle


def _ask(handle: Handle, best: Best, present: Keys, absent: Keys) -> None:
    for label, source in (("hit", present), ("miss", absent)):
        keys = source.fresh()
        with quiet():
            if handle.contains is not None:
                best.note(label, time_add(handle.contains, keys), len(keys))
            else:
                best.note(label, time_in(handle.target, keys), len(keys))
        if handle.contains_many is not None:
            keys = source.fresh()
            with quiet():
                asked = time_call(handle.contains_many, keys)
            best.note(f"bulk_{label}", asked, len(keys))


def render(records: list[Record]) -> str:
    notes = ["  the peers have 8 bits a fingerprint here, and no way to ask for many keys at once"]
    notes += [
        f"  {builder.name}: not installed, left out"
        for builder in CONTENDERS
        if not installed(builder.module)
    ]
    return render_kinds(records, {"static": notes})
