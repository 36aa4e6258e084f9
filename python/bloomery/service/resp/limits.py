"""Limits of Redis protocol requests that are not settings.

The settings are `max-arguments`, `proto-max-bulk-len` and `max-request-bytes`, which the native
parser checks, `max-input-bytes` and `client-output-limit`, which workers check, and `maxclients`.
"""

from __future__ import annotations

# Of a connection.

# Bytes of unsent replies above which the next command of a client waits. A short request (DUMP) can
# have a reply of 4 MiB. Workers have the same limit for reading (connection.rs).
MAX_PENDING_REPLIES = 1 << 20

# Of a command that does not run in slices: work of some milliseconds.

MAX_NAMES = 10_000  # of filters
MAX_OPTIONS = 1000  # arguments other than names
MAX_SCANNED = 10_000  # names that one SCAN checks, for any COUNT
MAX_PING_BYTES = 1 << 20  # of PING and ECHO, whose reply is copied several times
MAX_NUMBER_BYTES = 256  # of a number as text
LOAD_PIECE_BYTES = 256 << 10  # of BF.LOADCHUNK in one record of the log

# Of a transaction.

MAX_TRANSACTION_ARGUMENTS = 20_000  # of one command in it: some milliseconds
MAX_WATCHED = 10_000  # names

# Of a filter, as in RedisBloom.

MAX_CAPACITY = 1 << 30
MAX_EXPANSION = 32768
