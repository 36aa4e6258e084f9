"""A process that has imported the command, and forks one whenever a test runs one.

To start Python and import the command takes a quarter of a second of a core, and most tests run it
several times. What is forked has the arguments, folder, environment and files of the client below,
which starts in 15 ms; its exit code is the client's.

    test ─ subprocess.run ─> client ─ arguments, 0, 1, 2 ─> zygote ─fork─> keeper ─fork─> command
                               ^                                             │
                               └──────────────── exit code ──────────────────┘
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import sys

MOST = 100_000  # bytes of a message; who has more starts the command itself


def client(place: str, arguments: list[str]) -> None:
    """Have a command forked, and end as it did."""
    words = [os.fsencode(word) for word in arguments]
    order = marshal.dumps((words, os.getcwdb(), dict(os.environb)))
    if len(order) > MOST:
        os.execv(sys.executable, [sys.executable, "-m", "bloomery", *arguments])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as zygote:
        zygote.connect(place)
        socket.send_fds(zygote, [order], [0, 1, 2])
        code = int(zygote.recv(64))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def tend(place: str) -> None:
    """Fork commands until whoever started this has ended, and its end of our input with it."""
    import bloomery.cli.app
    import bloomery.cli.files.bank
    import bloomery.cli.files.build
    import bloomery.cli.files.create
    import bloomery.cli.files.dedup
    import bloomery.cli.files.estimate
    import bloomery.cli.files.info
    import bloomery.cli.files.membership
    import bloomery.cli.plan  # noqa: F401

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(place)
    listener.listen(100)
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers, for whom nobody waits
    while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _keep(connection)
        connection.close()


def _keep(connection: socket.socket) -> None:
    """Fork the command, and tell its exit code when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order, files, _, _ = socket.recv_fds(connection, 2 * MOST, 3)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(order, files)
    for file in (0, 1, 2, *files):
        os.close(file)
    _, status = os.waitpid(pid, 0)
    connection.send(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(order: bytes, files: list[int]) -> None:
    """Be the command."""
    from bloomery.cli import main

    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    words, folder, environment = marshal.loads(order)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    sys.argv = ["bloomery", *map(os.fsdecode, words)]
    sys.exit(main())


if __name__ == "__main__":
    if sys.argv[1] == "tend":
        del sys.path[0]  # the folder of these tests, which the command does not see either
        tend(sys.argv[2])
    else:
        client(sys.argv[2], sys.argv[3:])
