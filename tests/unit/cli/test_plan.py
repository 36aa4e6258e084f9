"""`bloomery plan`: sizes for a person and for a program."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from conftest import first_fast

Run = Callable[..., Any]


@pytest.mark.slow
def test_a_billion_keys(run: Run) -> None:
    """10**9 keys at 1% are shown with both layouts and about 1.2 GB."""
    text = run("plan", "1e9", "0.01").stdout.decode()
    assert "1,000,000,000 keys" in text
    assert "1.24 GB" in text
    assert "1.20 GB" in text
    for word in ("blocked", "classic", "memory", "bits a key", "hashes", "expected rate"):
        assert word in text


def test_json_has_the_textbook_figures(run: Run) -> None:
    """--json gives every figure by name; 10**7 keys at 1% are 95,850,584 bits and 7 hashes."""
    plans = json.loads(run("plan", "10M", "1%", "--json").stdout)
    assert set(plans) == {"blocked", "classic"}
    assert abs(plans["classic"]["num_bits"] - 95_850_584) <= 1
    assert plans["classic"]["num_hashes"] == 7
    assert plans["blocked"]["bits_per_key"] <= 10.0


@pytest.mark.slow
def test_one_layout(run: Run) -> None:
    """--layout shows only that one, and its JSON is the plan itself."""
    made = json.loads(run("plan", "10M", "1%", "--layout", "classic", "--json").stdout)
    assert made["layout"] == "classic"
    assert "blocked" not in run("plan", "10M", "1%", "--layout", "classic").stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    first_fast(
        [
            ["10M", "--memory", "16MB"],
            ["--memory", "1GB", "--error-rate", "1%"],
            ["10M", "--hashes", "4"],
            ["10M", "1%", "--hashes", "4"],
            ["10M", "1%", "--memory", "64MB"],
            ["10M", "--memory", "16MB", "--hashes", "4"],
            ["--memory", "1GB", "--hashes", "4"],
            ["10M"],
        ]
    ),
)
def test_any_two_or_three_give_the_rest(run: Run, args: list[str]) -> None:
    """Any two or three of capacity, rate, memory and hashes are enough, in both outputs."""
    for made in json.loads(run("plan", *args, "--json").stdout).values():
        assert made["capacity"] > 0
        assert made["nbytes"] > 0
        assert made["num_hashes"] > 0
        assert 0 < made["expected_error_rate"] < 1
    assert b"memory" in run("plan", *args).stdout


@pytest.mark.slow
def test_a_layout_that_cannot_says_why(run: Run) -> None:
    """Where one layout has no plan the other is shown, and the reason is printed."""
    text = run("plan", "10M", "1%", "--hashes", "9").stdout.decode()
    assert "classic" in text
    assert "blocked: num_hashes must be" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "message"),
    first_fast(
        [
            (("0", "1%"), "capacity must be"),
            (("1e30", "1%"), "capacity must be"),
            (("10M", "1.5"), "error_rate must be"),
            (("10M", "0"), "error_rate must be"),
            (("ten", "1%"), "'ten' is not a whole number such as"),
            (("10M", "1%", "--memory", "1MB"), "cannot hold 10,000,000 keys"),
            (("10M", "1%", "--error-rate", "2%"), "given twice"),
            ((), "too little to size a filter"),
        ]
    ),
)
def test_nonsense_is_one_line(
    run: Run,
    one_line: Callable[[bytes], str],
    args: tuple[str, ...],
    message: str,
) -> None:
    """What cannot be planned is one line on stderr and exit code 2."""
    assert message in one_line(run("plan", *args, code=2).stderr)


@pytest.mark.slow
def test_nodes_are_planned(run: Run) -> None:
    """--nodes shows machines and where it ends, and --json has the same figures by name."""
    asked = ("plan", "1e9", "1%", "--nodes", "--checks", "1M", "--writes", "5k")
    text = run(*asked).stdout.decode()
    for word in ("1.24 GB", "nodes", "Redis", "HAProxy", "Where it ends", "memory of a node"):
        assert word in text
    made = json.loads(run(*asked, "--json").stdout)
    assert made["groups"] == 1
    assert f"{made['all_nodes']} of a core each" in text
    own = json.loads(run(*asked, "--json", "--checks-per-core", "10M").stdout)
    assert own["all_nodes"] < made["all_nodes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "message"),
    first_fast(
        [
            (("1e9", "--checks", "1M"), "needs --nodes"),
            (("--nodes",), "needs a capacity"),
            (("1e9", "--nodes", "3"), "takes no number"),
            (("1e9", "0", "--nodes"), "error_rate must be"),
            (("1e9", "--nodes", "--memory", "1GB"), "cannot go with --memory or --hashes"),
            (("1e9", "--nodes", "--memory-per-node", "1MB"), "give it more"),
            (("1e9", "--nodes", "--load-rate", "0"), "load_rate must be 1 or more"),
        ]
    ),
)
def test_nonsense_of_nodes_is_one_line(
    run: Run,
    one_line: Callable[[bytes], str],
    args: tuple[str, ...],
    message: str,
) -> None:
    """What cannot be planned is one line on stderr and exit code 2."""
    assert message in one_line(run("plan", *args, code=2).stderr)
