"""What a capacity and an error rate may be, and how a message shows what they may not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real

from bloomery.errors import InvalidParameter

MIN_ERROR_RATE = 1e-9
MAX_ERROR_RATE = 0.5
MAX_CAPACITY = 2**40
MAX_MEMORY = 2**44  # bytes; MAX_CAPACITY keys at the lowest rate the hash allows need less
HASHES = 2.0**64
# Two keys of one 64-bit hash cannot be told apart by any number of bits. Past this share of
# the error rate the bits left to pay for the rest would grow without bound.
MAX_HASH_SHARE = 0.75


def check_capacity(value: object) -> int:
    """The capacity as an int, or InvalidParameter. 1e9 will do for 1_000_000_000."""
    count = number(value)
    if count is not None and 1 <= count <= MAX_CAPACITY and count == int(count):
        return int(count)
    keys = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    raise InvalidParameter(
        f"capacity must be a whole number from 1 to {MAX_CAPACITY:,}, not {show(value)}"
        + ("; a filter of these keys: BloomFilter.from_keys(keys)" if keys else "")
    )


def check_error_rate(value: object, least: float = MIN_ERROR_RATE) -> float:
    """The error rate as a float, or InvalidParameter. "1%" will do for 0.01."""
    rate = _rate(value)
    if rate is not None and least <= rate <= MAX_ERROR_RATE:
        return float(rate)
    percent = rate is not None and 1 <= rate < 100
    raise InvalidParameter(
        f"error_rate must be a number from {least:g} to {MAX_ERROR_RATE:g}, not {show(value)}"
        + ("; 1% is 0.01" if percent else "")
    )


def _rate(value: object) -> float | None:
    return parse_rate(value) if isinstance(value, str) else number(value)


def parse_rate(text: str) -> float | None:
    """A rate as people write it: "1%", "0.01", "1e-6"; None if it is no number."""
    from decimal import Decimal, InvalidOperation  # not before there is text

    digits = text.strip()
    try:
        parsed = Decimal(digits.removesuffix("%").rstrip())
    except InvalidOperation:
        return None
    if not parsed.is_finite():
        return None
    return float(parsed.scaleb(-2) if digits.endswith("%") else parsed)


def check_sizes(capacity: object, error_rate: object) -> tuple[int, float]:
    """Both, or InvalidParameter, which says so if each is in the place of the other."""
    check_order(capacity, error_rate)
    return check_capacity(capacity), check_error_rate(error_rate)


def check_order(capacity: object, error_rate: object) -> None:
    """InvalidParameter if each is in the place of the other."""
    first, second = _rate(capacity), number(error_rate)
    if first is not None and second is not None and 0 < first < 1 <= second:
        raise InvalidParameter(
            f"capacity is {show(capacity)} and error_rate {show(error_rate)}: swapped? name them, "
            f"as in capacity={show(error_rate)}, error_rate={show(capacity)}"
        )


def check_num_bits(value: object) -> int:
    """A number of bits, or InvalidParameter."""
    count = number(value)
    if isinstance(count, int) and 2 <= count <= 8 * MAX_MEMORY:
        return count
    raise InvalidParameter(
        f"num_bits must be a whole number from 2 to {8 * MAX_MEMORY:,}, not {show(value)}"
    )


def best_capacity(places: int, num_hashes: int) -> int:
    """For how many keys so many hashes are best: they fill half of the places."""
    return min(MAX_CAPACITY, max(1, int(math.log(2) * places / num_hashes)))


def check_shape_rate(num_bits: int, num_hashes: int, rate: float) -> float:
    """The rate of a shape that was given, or InvalidParameter if even its first keys err."""
    if rate <= MAX_ERROR_RATE:
        return max(MIN_ERROR_RATE, rate)
    raise InvalidParameter(
        f"num_bits {num_bits:,} with num_hashes {num_hashes} errs for {rate:.0%} of all keys from "
        "the first one on: give more bits, or fewer hashes"
    )


def check_hash_width(capacity: int, error_rate: float) -> None:
    """Raise InvalidParameter where 64-bit hashes alone spoil the error rate."""
    most = int(error_rate * MAX_HASH_SHARE * HASHES)
    if capacity > most:
        raise InvalidParameter(
            f"capacity {capacity:,} is too large for error_rate {error_rate:g}: 64-bit hashes"
            f" alone collide that often past {most:,} keys"
        )


def last_true(holds: Callable[[int], bool], guess: float, low: int, high: int) -> int:
    """The last x of low..high for which `holds` is still true; low - 1 when it never is.

    Steps out from the guess, doubling, then halves: few calls when the guess is good.
    """
    start = min(max(int(guess), low), high)
    step = 1
    if holds(start):
        true, false = start, min(start + step, high + 1)
        while false <= high and holds(false):
            step *= 2
            true, false = false, min(false + step, high + 1)
    else:
        true, false = max(start - step, low - 1), start
        while true >= low and not holds(true):
            step *= 2
            true, false = max(true - step, low - 1), true
    while false - true > 1:
        middle = (true + false) // 2
        true, false = (middle, false) if holds(middle) else (true, middle)
    return true


def number(value: object) -> int | float | None:
    """A plain int or float, from NumPy's scalars too; None for the rest: True, "10"."""
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, Integral):
            return int(value)
        return float(value) if isinstance(value, Real) else None
    except OverflowError:
        return math.inf  # a Fraction past the floats


def show(value: object) -> str:
    """A value as an error message shows it: short, with its type if that may surprise."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "an integer too long to show"  # str() itself refuses from 4,300 digits on
    text = repr(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return text if type(value) in (int, float) else f"{text} ({type(value).__name__})"
