"""A small web site with loops, in a process of its own: it notes every page that is asked for.

    python website.py PAGES LOG     prints its port; a line of LOG is a page that was fetched

Page n links to 2n + 1, 2n + 2, n // 2, itself, and the front page: a tree with many ways back. The
even pages come slowly, so that some are always in flight. While there is a file LOG.hold, what is
asked for after as many pages as it says is not answered.
"""

import asyncio
import sys
from pathlib import Path

_DELAY = 0.004


def links(page: int, pages: int) -> list[int]:
    """The pages that a page links to."""
    return [n for n in (2 * page + 1, 2 * page + 2, page // 2, page, 0) if n < pages]


async def serve(pages: int, log: str) -> None:
    """Serve until the process ends."""
    hold = Path(log + ".hold")
    with open(log, "ab", buffering=0) as fetched:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while head := await reader.readuntil(b"\r\n\r\n"):
                    path = head.split(b" ", 2)[1].decode()
                    page = int(path.strip("/") or 0)
                    fetched.write(b"%d\n" % page)
                    if page % 2 == 0:
                        await asyncio.sleep(_DELAY)
                    asked = Path(log).read_bytes().count(b"\n")
                    while hold.exists() and asked > int(hold.read_bytes() or 0):
                        await asyncio.sleep(_DELAY)
                    body = "".join(f'<a href="/{n}">{n}</a>' for n in links(page, pages)).encode()
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
                        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
                    )
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
