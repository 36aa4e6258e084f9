"""What pip would install for an extra, computed from the metadata of what is installed here."""

from collections.abc import Iterable
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(requires: Iterable[str], extra: str) -> set[str]:
    """The distributions that come with an extra of bloomery, whose own requirements are `requires`.

    Fails if the version that is installed of one is not one that was asked for.
    """
    seen: set[tuple[str, str]] = set()
    left = [("bloomery", extra)]
    while left:
        name, wanted = left.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        given = requires if name == "bloomery" else distribution(name).requires or []
        for need in map(Requirement, given):
            if need.marker is None or need.marker.evaluate({"extra": wanted}):
                needed = canonicalize_name(need.name)
                if needed != "bloomery":
                    version = distribution(needed).version
                    assert need.specifier.contains(version, prereleases=True), (name, str(need))
                left += [(needed, further) for further in ("", *need.extras)]
    return {name for name, _ in seen} - {"bloomery"}
