"""The limits of a request of the Redis protocol that are no setting.

Those that are: `max-arguments`, `proto-max-bulk-len` and `max-request-bytes`, which the native
parser keeps; `max-input-bytes` of all clients together; `client-output-limit`; `maxclients`.
"""

from __future__ import annotations

# Of a connection.

# Beyond so many bytes of replies a connection is not read on before they have gone out: a short
# request (DUMP) may have a reply of 4 MiB.
MAX_PENDING_REPLIES = 1 << 20
MAX_STRANGER_BYTES = 64 << 10  # of a request by a client that has yet to log in
MAX_UNREAD_CHUNKS = 4  # that come while the log is written, before no more is read

# Of a command that is not done in slices: what can be looked at in some milliseconds.

MAX_NAMES = 10_000  # of filters
MAX_OPTIONS = 1000  # arguments that are no names
MAX_SCANNED = 10_000  # names that one SCAN looks at, whatever COUNT says
MAX_PING_BYTES = 1 << 20  # of PING and ECHO, whose reply is copied several times
MAX_NUMBER_BYTES = 256  # of a number as text
LOAD_PIECE_BYTES = 256 << 10  # of BF.LOADCHUNK, that are taken in one go, and logged so

# Of a transaction.

MAX_TRANSACTION_ARGUMENTS = 20_000  # of one command in it: some milliseconds
MAX_WATCHED = 10_000  # names

# Of a filter, as RedisBloom has them.

MAX_CAPACITY = 1 << 30
MAX_EXPANSION = 32768
