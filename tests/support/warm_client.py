"""Stands in for `python` in a shell: `warm_client.py SOCKET WORD…` has a warm Python run the words.

It imports nothing that is not built in, because shells start many.
"""

import _socket
import os
import sys


def main(address: str, *words: str) -> None:
    """Ask, wait, and end as the command ended."""
    if not words or (words[0][:1] == "-" and words[0] not in ("-m", "-c")):
        os.execv(sys.executable, [sys.executable, *words])
    place = os.getcwdb()  # noqa: PTH109  # pathlib is most of what this would cost
    texts = [place, b"%d" % len(words), *map(os.fsencode, words)]
    texts += [name + b"=" + text for name, text in os.environb.items()]
    body = b"\0".join(texts)
    files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(address)
    connection.sendmsg([b"%08d" % len(body)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    while body:
        body = body[connection.send(body) :]
    said = b""
    while given := connection.recv(64):
        said += given
    _, code = said.split()
    if int(code) < 0:
        os.kill(os.getpid(), -int(code))
    os._exit(int(code))


if __name__ == "__main__":
    main(*sys.argv[1:])
