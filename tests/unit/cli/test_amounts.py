"""Numbers as people write them."""

import pytest

from conftest import require

require("typer")

from bloomery.cli import amounts  # noqa: E402


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1000", 1000),
        ("1_000_000", 1_000_000),
        ("1,000,000", 1_000_000),
        ("1e9", 10**9),
        ("1E9", 10**9),
        ("10M", 10_000_000),
        ("10m", 10_000_000),
        ("2.5k", 2500),
        ("0.3M", 300_000),
        ("1G", 10**9),
        ("1B", 10**9),
        ("0", 0),
    ],
)
def test_counts(text: str, number: int) -> None:
    """A count is read exactly, in the notations people use."""
    assert amounts.parse_count(text) == number


@pytest.mark.parametrize("text", ["", "x", "1.5", "-1", "nan", "inf", "1e999999999", "1%", "1 2"])
def test_not_counts(text: str) -> None:
    """What is not a whole number is refused at once, with examples of what is."""
    with pytest.raises(Exception, match="is not a whole number such as"):
        amounts.parse_count(text)


@pytest.mark.parametrize(
    ("text", "number"), [("0.01", 0.01), ("1%", 0.01), ("0.1%", 0.001), ("1e-6", 1e-6), (".5", 0.5)]
)
def test_rates(text: str, number: float) -> None:
    """A rate is a fraction or a percentage, and both give the same float."""
    assert amounts.parse_rate(text) == number


@pytest.mark.parametrize("text", ["", "%", "1M", "one", "nan"])
def test_not_rates(text: str) -> None:
    """What is not a rate is refused with examples of what is."""
    with pytest.raises(Exception, match="is not an error rate such as"):
        amounts.parse_rate(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("4096", 4096), ("64MB", 64 * 10**6), ("1.5GB", 15 * 10**8), ("1GiB", 2**30), ("2k", 2000)],
)
def test_memory(text: str, number: int) -> None:
    """MB is a million bytes and MiB is 2**20."""
    assert amounts.parse_memory(text) == number


@pytest.mark.parametrize("text", ["", "1XB", "GB", "-1MB"])
def test_not_memory(text: str) -> None:
    """What is not an amount of memory is refused with examples of what is."""
    with pytest.raises(Exception, match="is not an amount of memory such as"):
        amounts.parse_memory(text)


def test_seeds() -> None:
    """A seed is decimal or hexadecimal."""
    assert (amounts.parse_seed("42"), amounts.parse_seed("0x5eed")) == (42, 0x5EED)
    with pytest.raises(Exception, match="is not a seed such as"):
        amounts.parse_seed("zz")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (1_239_748_544, "1.24 GB"),
        (1_198_132_336, "1.20 GB"),
        (12_300_000, "12.3 MB"),
        (999_960_000, "1.00 GB"),
    ],
)
def test_shown_memory(nbytes: int, text: str) -> None:
    """Memory is shown with three digits, in powers of ten."""
    assert amounts.show_memory(nbytes) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0.01, "1%"), (0.001, "0.1%"), (1e-6, "1e-06"), (0, "0%"), (0.5, "50%")]
)
def test_shown_rates(rate: float, text: str) -> None:
    """A rate is shown as a percentage, a tiny one as a power of ten."""
    assert amounts.show_rate(rate) == text
