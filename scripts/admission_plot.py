"""The plot of docs/caching.md, from benchmarks/results/admission.json: `make figures`.

`python scripts/admission_plot.py [RESULTS.json [PICTURE.svg]]`: hit ratio, byte hit ratio and
writes by the size of the cache, with admission and without; as PNG if the picture's name says so.
Needs matplotlib (requirements/bench.txt).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
RESULTS = TREE / "benchmarks" / "results" / "admission.json"
PICTURE = TREE / "docs" / "images" / "admission.svg"
WAYS = {"without": ("#57606a", "--", "s"), "with": ("#bc4c00", "-", "o")}
PANELS = {
    "hit_ratio": ("hit ratio", 100, "%"),
    "byte_hit_ratio": ("byte hit ratio", 100, "%"),
    "writes": ("writes into the cache", 1, ""),
}


def draw(results: Path, picture: Path) -> None:
    """Write the picture, the same bytes for the same results."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "bloomery",
            "svg.fonttype": "none",
            "font.size": 10,
            "font.family": "sans-serif",
        }
    )
    import matplotlib.pyplot as plt

    document = json.loads(results.read_text("utf-8"))
    rows: list[dict[str, Any]] = [r for r in document["records"] if r["table"] == "trace"]
    shares = [100 * r["share"] for r in rows]
    # A panel of its own colour, so that it is readable on a light page and on a dark one.
    figure, axes = plt.subplots(1, 3, figsize=(9.2, 3.2), facecolor="#f6f8fa")
    for axis, (field, (title, scale, unit)) in zip(axes, PANELS.items(), strict=True):
        for way, (color, line, marker) in WAYS.items():
            values = [scale * r[way][field] for r in rows]
            axis.plot(shares, values, line, color=color, marker=marker, label=f"{way} admission")
        axis.set_xscale("log")
        axis.set_xticks(shares, [f"{share:g}%" for share in shares])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter(lambda value, _, unit=unit: f"{value:,.0f}{unit}")
        axis.set_title(title, fontsize=11)
        axis.set_xlabel("cache size, of all bytes")
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False, loc="lower right")
    figure.tight_layout()
    metadata = {"Date": None, "Creator": None} if picture.suffix == ".svg" else {}
    figure.savefig(picture, metadata=metadata)
    plt.close(figure)


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:3]]
    source = paths[0] if paths else RESULTS
    if not source.exists():
        print(f"no {source.name} yet: python -m benchmarks --only admission")
    else:
        draw(source, paths[1] if len(paths) > 1 else PICTURE)
