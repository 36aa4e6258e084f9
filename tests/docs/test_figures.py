"""Published figures: each is made from a results file of a run that counts, and names it."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import summary
from benchmarks.parts import PARTS
from bloomery import BloomFilter, CuckooFilter
from docs.pages import DOCS, TREE, name_of
from scripts.figures import blocks, results
from scripts.figures.blocks import BLOCKS, MARKED, Make, block
from scripts.figures.files import PAGES, made

FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
# What reads like a measurement: a time or a rate of a key, how many times as fast something is.
LOOKS_MEASURED = re.compile(
    r"""\d[\d.,]*[ ]?(?:
            ns | µs | [kMG]B/s | [kM]/s | (?:[kM][ ])?(?:keys|rows|lines)[ ]a[ ]second
            | times[ ](?:as[ ](?:fast|quick|slow)|faster|slower|quicker)
        )(?!\w)
        | (?<![\w`])\d[\d.,]*[ ]?[×x](?!\w|…|[ ]?\d)""",
    re.X,
)
README_TOO = re.compile(
    r"\d[\d.,]*[ ]?(?:ms|s|MB|GB|bits a key|a second)(?!\w)|\d[\d.,]*%[ ](?:faster|slower)"
)


def test_published_figures_are_made_from_results() -> None:
    """What README, the pages and `bloomery plan --nodes` say was measured is what scripts/figures
    makes of the committed results files, and so is the report of them."""
    for path, text in made().items():
        assert path.read_text("utf-8") == text, f"make figures: {path.name}"


def marked() -> dict[str, str]:
    """The text of every block, by its name."""
    pages = [TREE / "README.md", *sorted(DOCS.glob("*.md"))]
    return {
        found[2]: found[0] for page in pages for found in MARKED.finditer(page.read_text("utf-8"))
    }


def test_every_block_has_a_function() -> None:
    """What a page has between its marks is made."""
    assert PAGES
    assert set(marked()) <= set(BLOCKS)


def test_every_block_names_its_results_files() -> None:
    """Below each block stand the results files it is made from, with command and day; or that
    nobody has measured it, and how to."""
    for name, text in marked().items():
        if "Not measured yet" in text:
            assert re.search(r"`(make bench\S*|make bench BENCH=\S.*)`", text), name
            continue
        named = re.findall(r"`(\w+)\.json`:\s`[^`]+`,\s\d{4}-\d\d-\d\d", text)
        assert named, name
        assert set(named) <= set(PARTS), name


def unmarked(page: Path) -> str:
    """A page without its blocks, its programs and what another script makes, line by line where it
    was."""
    text = page.read_text("utf-8").partition("<!-- made by ")[0]
    for made_or_run in (MARKED, FENCED):
        text = made_or_run.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


@pytest.mark.parametrize("page", [TREE / "README.md", *sorted(DOCS.glob("*.md"))], ids=name_of)
def test_no_figure_is_typed(page: Path) -> None:
    """What reads like a measurement stands in a block: typed by hand it would drift."""
    looks = [LOOKS_MEASURED, *([README_TOO] if page.parent == TREE else [])]
    found = [
        f"{name_of(page)}:{number}: {line.strip()}"
        for number, line in enumerate(unmarked(page).splitlines(), 1)
        if any(look.search(line) for look in looks)
    ]
    assert not found, "put it in a block of scripts/figures:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "typed",
    [
        "a look-up takes 49 ns",
        "in 25 µs",
        "at 650 MB/s",
        "2.9 M keys a second",
        "1.7 times as quick as",
        "12 times faster",
        "0.35x the time",
        "5 × faster",
    ],
)
def test_a_typed_figure_is_found(typed: str) -> None:
    """The test above would see it."""
    assert LOOKS_MEASURED.search(typed)


def test_the_size_of_a_cuckoo_filter_is_computed() -> None:
    """README's row of the cuckoo filter says what its size is to a plain filter's."""
    shares = [
        CuckooFilter(1_000_000, rate).nbytes / BloomFilter(1_000_000, rate).nbytes
        for rate in (0.01, 0.001)
    ]
    more, less = ("more" if share >= 1 else "less" for share in shares)
    one, two = (f"{abs(share - 1):.0%}" for share in shares)
    told = f"at 1% in {one} {more} memory than a plain filter, at 0.1% in {two} {less}"
    assert told in (TREE / "README.md").read_text("utf-8")


GOOD = {"busy": 0.0, "settings": {"quick": False, "scale": 1.0}, "records": [{"seconds": 1}]}


@pytest.mark.parametrize(
    "change", [{"busy": 1.5}, {"settings": {"quick": True, "scale": 1.0}}], ids=["busy", "quick"]
)
def test_busy_and_quick_runs_are_not_published(
    change: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A results file that says that others used the machine, or that it is of a quick run, makes
    no figures."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    (tmp_path / "good.json").write_text(json.dumps(GOOD), "utf-8")
    (tmp_path / "bad.json").write_text(json.dumps(GOOD | change), "utf-8")
    assert results.records("good") == [{"seconds": 1}]
    with pytest.raises(summary.Unpublishable, match=r"bad\.json"):
        results.records("bad")


def test_what_is_not_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block without a results file, or without the records it needs, tells how to measure it."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    entered: dict[str, Make] = {}
    monkeypatch.setattr(blocks, "BLOCKS", entered)

    @block("service")
    def tried() -> str:
        return str(results.record("service", table="restart"))

    told = '*Not measured yet: `make bench BENCH="--only service"`.*\n'
    assert entered["tried"]() == told
    (tmp_path / "service.json").write_text(json.dumps(GOOD), "utf-8")
    assert entered["tried"]() == told
