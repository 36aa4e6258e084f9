"""The limits behind HTTP's 413 and its like: how much one request may have.

Some are settings: `http-max-body-bytes` of a body that is read whole, `max-request-bytes` and
`proto-max-bulk-len` of what a stream keeps at once, `http-max-answers` of a stream's answers, and
`max-input-bytes` of all requests together (503). Seconds are settings too (408). These are not.
"""

from __future__ import annotations

# 431, of a head.
MAX_HEAD = 16 << 10  # bytes
# Requests that are sent ahead of their answers: those behind them are held back.
MAX_PIPELINED = 64
KEEP_ALIVE_SECONDS = 75  # until the server closes a connection between two requests

# 413, of a body in JSON.
MAX_PLAIN_BODY = 1 << 20  # bytes, of one that has no keys
MAX_JSON_AT_ONCE = 64 << 10  # bytes that are parsed in one go: some milliseconds, whatever they are
MAX_JSON_KEY = 4 << 20  # bytes of one key, which is copied several times: 10 ms
MAX_JSON_KEYS = 1 << 18
MAX_JSON_PARTS = 1 << 19  # of all keys that are arrays
# Arrays in those. The garbage collector walks all of them in one go: 500,000 took 60 ms.
MAX_JSON_NESTED = 1 << 17
MAX_JSON_VALUES = 10_000  # of what is longer than can be parsed in one go, and no list of keys
MAX_JSON_DEPTH = 1000  # arrays in arrays (400): Python's parser takes fewer

# 413, of a stream: lines of JSON, Arrow.
MAX_NDJSON_VALUE = 256 << 10  # bytes of a line that is no string, which alone is read quickly
MAX_ARROW_MESSAGE = 16 << 20  # bytes, which are copied in one go before the first row: 20 ms
MAX_ARROW_METADATA = 1 << 20  # bytes of a message's head (422)
MAX_DISCARDED = 256 << 20  # bytes that are read behind what was wrong, so that the client hears it

# 503, of files that are sent at once: each may take as much disk as its filter has bytes.
MAX_EXPORTS = 8
# Filters that one request of a list looks at, however few it shows.
MAX_SCANNED = 10_000
