"""What a filter of a server has only where it need not be awaited: `in`, properties and `|=`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Key


class RemoteFigures:
    """`in`, and the figures of a filter, each asked of the server when it is read."""

    if TYPE_CHECKING:  # the remote filter's own

        def contains(self, key: Key) -> bool: ...
        def info(self) -> dict[str, Any]: ...
        def merge(self, *others: Any) -> None: ...

    def __contains__(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return self.contains(key)

    @property
    def kind(self) -> str:
        """Its kind, as the server says now; so are all figures below."""
        return str(self.info()["kind"])

    @property
    def capacity(self) -> int:
        """How many distinct keys it is made for."""
        return int(self.info()["capacity"])

    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe."""
        return float(self.info()["error_rate"])

    @property
    def fill_ratio(self) -> float:
        """The share of its places that are taken."""
        return float(self.info()["fill_ratio"])

    @property
    def estimated_count(self) -> int:
        """How many distinct keys it holds, estimated where it is not known."""
        return int(self.info()["estimated_count"])

    @property
    def estimated_error_rate(self) -> float:
        """The share of absent keys answered with a maybe, as the filter stands now."""
        return float(self.info()["estimated_error_rate"])

    @property
    def nbytes(self) -> int:
        """Bytes of the server's memory."""
        return int(self.info()["nbytes"])

    def __ior__(self, other: object) -> Self:
        """Add every key of another filter of the server."""
        if not isinstance(other, RemoteFigures):
            return NotImplemented
        self.merge(other)
        return self
