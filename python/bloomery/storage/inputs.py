"""Where lines come from: files and standard input, plain, gzip or zstd by their first bytes.

A source only ever holds the piece it is reading. Compressed input is fed to the decoder 8 KiB at a
time: a gzip piece then grows to 8 MB at most, a hostile zstd piece to 256 MB. The decoders are
driven by hand because a zstd stream reader takes a truncated file for a complete one, and a
dedup that loses the end of its input without a word is worse than none.
"""

import errno
import io
import os
import stat
from collections.abc import Iterator
from typing import Any

from bloomery import extras
from bloomery.errors import InvalidSource
from bloomery.storage.files import is_head

STDIN = 0

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after one byte 0x50..0x5f: how pzstd starts a file
MAX_LINE = 256 << 20  # bytes of a line: it is in memory whole
_PIECE = 8 << 10
_READ = 256 << 10
_PIPE_SIZE = 1 << 20  # the default of 64 KiB would mean a native call for every 64 KiB


class InputFile:
    """One input, opened: decoded bytes come out, `position` and `size` count encoded ones."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == "-" else path
        self._owned = path != "-"
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if self._owned else STDIN
        self._taken = 0
        self._head = b""
        try:
            self._head = self._read_head()
            self._decoder = _decoder_for(self._head, self.name)
        except BaseException:
            self.close()
            raise

    def _read(self, size: int) -> bytes:
        try:
            data = os.read(self._fd, size)
        except OSError as failure:
            if failure.errno == errno.EBADF and not self._owned:
                raise OSError(
                    failure.errno, "is closed; name a file, or pipe lines in", self.name
                ) from None
            raise OSError(failure.errno, failure.strerror, self.name) from None
        self._taken += len(data)
        return data

    def _read_head(self) -> bytes:
        _enlarge_pipe(self._fd)
        head = b""
        # A pipe may hand over a single byte first; only a possible magic number is waited for.
        while len(head) < 4 and (not head or _could_be_magic(head)):
            piece = self._read(_READ)
            if not piece:
                break
            head += piece
        return head

    @property
    def position(self) -> int:
        """Encoded bytes used so far."""
        unused = 0 if self._decoder is None else self._decoder.unused
        return self._taken - len(self._head) - unused

    @property
    def ahead(self) -> int:
        """Decoded bytes that are still to be handed over: one piece of input may be megabytes."""
        return 0 if self._decoder is None else self._decoder.ahead

    @property
    def size(self) -> int | None:
        """Encoded bytes in all, where that can be known: for a regular file."""
        status = os.fstat(self._fd)
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    @property
    def status(self) -> os.stat_result:
        """What the file system says now of the file that was opened, wherever it is named."""
        return os.fstat(self._fd)

    @property
    def compressed(self) -> bool:
        """Whether it is compressed."""
        return self._decoder is not None

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`; 0 only at the end."""
        if self._decoder is not None:
            return self._decoder.readinto(view, self)
        if self._head:
            taken = min(len(view), len(self._head))
            view[:taken] = self._head[:taken]
            self._head = self._head[taken:]
            return taken
        try:
            count = os.readv(self._fd, [view])
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, self.name) from None
        self._taken += count
        return count

    def skip(self, count: int) -> None:
        """Pass over so many decoded bytes, or all there are."""
        if self._decoder is None and self.size is not None:
            start = min(count, self.size)
            os.lseek(self._fd, start, os.SEEK_SET)
            self._taken, self._head = start, b""
            return
        view = memoryview(bytearray(min(count, _READ)))
        while count and (taken := self.readinto(view[:count])):
            count -= taken

    def next_encoded(self) -> bytes:
        """The next encoded piece for the decoder; empty at the end."""
        if not self._head:
            self._head = self._read(_READ)
        piece, self._head = self._head[:_PIECE], self._head[_PIECE:]
        return piece

    def close(self) -> None:
        if self._owned and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "InputFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _RawInput(io.RawIOBase):
    """What `reader` reads."""

    def __init__(self, source: InputFile) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.readinto(memoryview(buffer))


def reader(source: InputFile) -> io.BufferedReader:
    """A source as Python's own files are."""
    return io.BufferedReader(_RawInput(source), _READ)


def arrow_file(source: InputFile) -> Any:
    """A source at its beginning, for Arrow to read: by itself, where it is a plain file.

    Arrow reads ahead in threads of its own. One that wants Python's lock for a file of Python's
    while the interpreter ends is unwound through C++, which aborts the process. It opens the file
    by its name: ESTALE if that is another file's by now.
    """
    if source.compressed or source.size is None:
        return reader(source)
    import pyarrow

    file = pyarrow.OSFile(source.name)
    if not os.path.samestat(os.fstat(file.fileno()), source.status):
        file.close()
        raise OSError(errno.ESTALE, "was replaced while it was opened; try again", source.name)
    return file


def line_too_long(name: str, limit: int = MAX_LINE) -> InvalidSource:
    """The error of an input whose line does not end."""
    return InvalidSource(
        f"{name}: a line is longer than {limit >> 20} MiB: check that it is text, with line ends"
    )


def lines_of(source: InputFile) -> Iterator[bytes]:
    """Each line, without its newline."""
    for line in reader(source):
        yield line.removesuffix(b"\n")


class _Decoder:
    """Drives decompression objects, one for each gzip member or zstd frame."""

    def __init__(self, name: str, kind: str, make: Any, error: type[Exception]) -> None:
        self._name, self._kind, self._make, self._error = name, kind, make, error
        self._current = make()
        self._fresh = True  # no byte of the current member has been seen
        self._rest = b""
        self._output = memoryview(b"")

    @property
    def unused(self) -> int:
        """Encoded bytes that it was given, and has not decoded."""
        return len(self._rest)

    @property
    def ahead(self) -> int:
        """Decoded bytes that nobody has read yet."""
        return len(self._output)

    def readinto(self, view: memoryview, source: InputFile) -> int:
        while not self._output:
            piece = self._rest or source.next_encoded()
            self._rest = b""
            if not piece:
                if self._fresh:
                    return 0
                raise OSError(
                    errno.EIO, f"the {self._kind} data ends too early; is it cut off?", self._name
                )
            if self._fresh and self._kind == "gzip":
                piece = piece.lstrip(b"\0")  # tapes and block devices pad with zeros
                if not piece:
                    continue
            self._fresh = False
            try:
                self._output = memoryview(self._current.decompress(piece))
            except self._error as failure:
                raise OSError(
                    errno.EIO, f"the {self._kind} data is damaged ({failure})", self._name
                ) from None
            if self._current.eof:
                self._rest = self._current.unused_data
                self._current, self._fresh = self._make(), True
        taken = min(len(view), len(self._output))
        view[:taken] = self._output[:taken]
        self._output = self._output[taken:]
        return taken


def _could_be_magic(head: bytes) -> bool:
    skippable = head[0] & 0xF0 == 0x50 and _ZSTD_SKIPPABLE.startswith(head[1:])
    return skippable or _GZIP.startswith(head) or _ZSTD.startswith(head)


def is_filter(path: str) -> bool:
    """True if a file is a saved filter, and no lines."""
    try:
        if path == "-" or not stat.S_ISREG(os.stat(path).st_mode):
            return False  # what is read from a pipe is gone
        with open(path, "rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        return False
    if head.startswith(b"SQLite format 3"):
        raise OSError(errno.EINVAL, "is a database, not lines; --exact has its keys there", path)
    return is_head(head)


def is_compressed(head: bytes) -> bool:
    """Whether a file that starts like this is gzip or zstd."""
    return head.startswith((_GZIP, _ZSTD)) or _is_skippable(head)


def _is_skippable(head: bytes) -> bool:
    return head[1:4] == _ZSTD_SKIPPABLE and head[0] & 0xF0 == 0x50


def _decoder_for(head: bytes, name: str) -> _Decoder | None:
    if head.startswith(_GZIP):
        import zlib

        return _Decoder(name, "gzip", lambda: zlib.decompressobj(31), zlib.error)
    if head.startswith(_ZSTD) or _is_skippable(head):
        with extras.needed("zstandard", f"{name} is zstd-compressed, and that"):
            import zstandard
        decompressor = zstandard.ZstdDecompressor()
        return _Decoder(name, "zstd", decompressor.decompressobj, zstandard.ZstdError)
    return None


def _enlarge_pipe(fd: int) -> None:
    try:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except (ImportError, AttributeError, OSError):
        pass  # not a pipe, not Linux, or over the user's limit: it works all the same
