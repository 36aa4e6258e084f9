"""Numbers as people write them on a command line, and back again: `sizing.amounts`, with the errors
of a command line.
"""

from bloomery.sizing import amounts, limits
from bloomery.sizing.amounts import show_memory, show_rate

__all__ = ["parse_count", "parse_memory", "parse_rate", "parse_seed", "show_memory", "show_rate"]


def _refuse(text: str, wanted: str) -> Exception:
    from typer import BadParameter

    return BadParameter(f"{text!r} is not {wanted}")


def parse_count(text: str | int) -> int:
    """A whole number of keys or hashes: 1000, 1_000_000, 1,000,000, 1e9, 10M, 2.5G."""
    count = text if isinstance(text, int) else amounts.parse_count(text)
    if count is None:
        raise _refuse(str(text), "a whole number such as 1000000, 1_000_000, 10M or 1e9")
    return count


def parse_rate(text: str | float) -> float:
    """A probability: 0.01, 1e-6, 1%."""
    if isinstance(text, float):
        return text
    rate = limits.parse_rate(text)
    if rate is not None:
        return rate
    raise _refuse(text, "an error rate such as 0.01, 1% or 1e-6")


def parse_memory(text: str | int) -> int:
    """A number of bytes: 64MB, 1.5GB (powers of ten), 1GiB (powers of two), 4096."""
    nbytes = text if isinstance(text, int) else amounts.parse_memory(text)
    if nbytes is None:
        raise _refuse(str(text), "an amount of memory such as 64MB, 1.5GB or 1GiB")
    return nbytes


def parse_seed(text: str | int) -> int:
    """A seed: decimal, or hexadecimal with 0x."""
    if isinstance(text, int):
        return text
    try:
        return int(text, 0)
    except ValueError:
        raise _refuse(text, "a seed such as 42 or 0x5eed") from None


# What the help shows as their types.
parse_count.__name__, parse_rate.__name__ = "count", "rate"
