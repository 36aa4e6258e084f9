"""Bytes to and from disk: saved filters, a bank's own file, files of lines.

`save` writes a temporary file beside the target, syncs it, renames it over the target and syncs the
folder: a crash leaves the old file or the new one. The header has its own checksum, so that nothing
of it is believed unchecked; the bits have a chain of sums of chunks, so that a writer can sum what
it writes while keys are still added.

`load(mmap=True)` maps the file and uses its pages as the bits. With `writable=True` the checksum of
the bits is first replaced by LIVE, in one aligned store, because no checksum of bits that change
can hold (docs/decisions/0005-checksums-and-live.md).
"""
