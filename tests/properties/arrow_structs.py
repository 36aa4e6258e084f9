"""Arrow's C structures made by hand, right or wrong in any field; for `column_fuzzer.py`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_SLACK = bytes(4096)  # behind each buffer: what a wider type would read


class CSchema(ctypes.Structure):
    """ArrowSchema."""

    _fields_ = [
        ("format", ctypes.c_void_p),
        ("name", ctypes.c_void_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class CArray(ctypes.Structure):
    """ArrowArray."""

    _fields_ = [
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class CStream(ctypes.Structure):
    """ArrowArrayStream."""

    _fields_ = [
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


def _released(kind: Any) -> Any:
    def release(at: int) -> None:
        kind.from_address(at).release = None

    return CALLBACK(release)


RELEASE = {kind: _released(kind) for kind in (CSchema, CArray, CStream)}


@dataclass
class Column:
    """What the structures of a column say; `schema` and `array` overrule single fields."""

    format: str
    length: int
    buffers: list[bytes | None]
    offset: int = 0
    null_count: int = 0
    metadata: bytes | None = None
    children: list[Column] = field(default_factory=list)
    dictionary: Column | None = None
    schema: dict[str, int | None] = field(default_factory=dict)
    array: dict[str, int | None] = field(default_factory=dict)


class Memory:
    """Makes structures, and keeps what they point to."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def keep(self, thing: Any) -> Any:
        """Keep something until the memory itself goes."""
        self._kept.append(thing)
        return thing

    def _bytes(self, data: bytes) -> int:
        return ctypes.addressof(self.keep(ctypes.create_string_buffer(data + _SLACK)))

    def _pointers(self, values: list[int | None]) -> int | None:
        if not values:
            return None
        return ctypes.addressof(self.keep((ctypes.c_void_p * len(values))(*values)))

    def schema(self, column: Column) -> Any:
        """The schema of a column."""
        children = [ctypes.addressof(self.schema(child)) for child in column.children]
        made = CSchema(
            format=self._bytes(column.format.encode("latin-1") + b"\0"),
            name=self._bytes(b"key\0"),
            metadata=None if column.metadata is None else self._bytes(column.metadata),
            flags=2,
            n_children=len(children),
            children=self._pointers(list(children)),
            release=ctypes.cast(RELEASE[CSchema], ctypes.c_void_p).value,
        )
        if column.dictionary is not None:
            made.dictionary = ctypes.addressof(self.schema(column.dictionary))
        return self._with(made, column.schema)

    def array(self, column: Column) -> Any:
        """The array of a column."""
        children = [ctypes.addressof(self.array(child)) for child in column.children]
        buffers = [None if one is None else self._bytes(one) for one in column.buffers]
        made = CArray(
            length=column.length,
            null_count=column.null_count,
            offset=column.offset,
            n_buffers=len(buffers),
            n_children=len(children),
            buffers=self._pointers(list(buffers)),
            children=self._pointers(list(children)),
            release=ctypes.cast(RELEASE[CArray], ctypes.c_void_p).value,
        )
        if column.dictionary is not None:
            made.dictionary = ctypes.addressof(self.array(column.dictionary))
        return self._with(made, column.array)

    def _with(self, made: Any, fields: dict[str, int | None]) -> Any:
        for name, value in fields.items():
            setattr(made, name, value)
        return self.keep(made)

    def capsule(self, made: Any, name: bytes) -> Any:
        """A capsule that leads to a structure."""
        self.keep(name)
        return _new(ctypes.addressof(made), name, None)


class Handed:
    """A column as one array."""

    def __init__(self, memory: Memory, column: Column) -> None:
        self._memory, self._column = memory, column

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        """Return the two capsules, made anew each time."""
        return (
            self._memory.capsule(self._memory.schema(self._column), b"arrow_schema"),
            self._memory.capsule(self._memory.array(self._column), b"arrow_array"),
        )


class Streamed:
    """Columns of one schema as a stream; `fails` makes the callback of this name fail."""

    def __init__(self, memory: Memory, columns: list[Column], fails: str = "") -> None:
        self._memory, self._columns, self._fails = memory, columns, fails

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the capsule, made anew each time."""
        memory, left = self._memory, list(self._columns)
        get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

        def get_schema(_: int, out: int) -> int:
            made = memory.schema(self._columns[0])
            ctypes.memmove(out, ctypes.addressof(made), ctypes.sizeof(made))
            return 0

        def get_next(_: int, out: int) -> int:
            made = memory.array(left.pop(0)) if left else CArray()
            ctypes.memmove(out, ctypes.addressof(made), ctypes.sizeof(made))
            return 0

        def fail(_: int, out: int) -> int:
            return 5

        def callback(name: str, does: Callable[[int, int], int]) -> int | None:
            made = memory.keep(get(fail if self._fails == name else does))
            return None if self._fails == f"no {name}" else _address(made)

        stream = CStream(
            get_schema=callback("get_schema", get_schema),
            get_next=callback("get_next", get_next),
            get_last_error=_address(
                memory.keep(ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(lambda _: None))
            ),
            release=None if self._fails == "released" else _address(RELEASE[CStream]),
        )
        return memory.capsule(memory.keep(stream), b"arrow_array_stream")


def _address(callback: Any) -> int | None:
    return ctypes.cast(callback, ctypes.c_void_p).value
