"""Run as a program: many connections to one port, each with some garbage, held open until the input ends.

``python garbage_crowd.py PORT COUNT``; says ``open N`` once all that could be opened are.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import sys

HEAD = b'{"code":11,"extFields":{"consumerGroup":"G","topic":"Good","queueId":"0"},"opaque":1}'


def kinds(dice: random.Random) -> bytes:
    """The first bytes of one connection: silence, half of something, nonsense."""
    kind = dice.randrange(6)
    if kind == 0:
        return b""
    if kind == 1:  # a large frame that never becomes whole
        return struct.pack(">i", dice.randrange(1000, 16_000_000)) + dice.randbytes(
            dice.randrange(900)
        )
    if kind == 2:  # half of a request
        whole = struct.pack(">iI", 4 + len(HEAD), len(HEAD)) + HEAD
        return whole[: dice.randrange(1, len(whole))]
    if kind == 3:
        return b"GET / HTTP/1.1\r\n"
    if kind == 4:
        return dice.randbytes(dice.randrange(1, 200))
    return struct.pack(">iI", 4 + 20, 20) + dice.randbytes(20)


def main() -> None:
    port, count = map(int, sys.argv[1:])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    dice = random.Random(7)
    links = []
    for _ in range(count):
        link = socket.socket()
        link.connect(("127.0.0.1", port))
        with contextlib.suppress(ConnectionError):
            link.sendall(kinds(dice))
        links.append(link)
    sys.stdout.write(f"open {len(links)}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
