"""A worker for tests that does not keep to the form of answers."""

import os
import sys
import time

import msgspec

WRITES = {
    "no json": b"Segmentation fault\n",
    "not utf-8": b"\xff\xfe\n",
    "another tag": b'{"type":"other"}\n',
    "a wrong field": b'{"type":"result","text":5}\n',
    "too long": b"x" * (17 * 1024 * 1024) + b"\n",
    "half a line": b'{"type":"resu',
    "nothing": b"",
}


def main():
    order = msgspec.json.decode(sys.stdin.buffer.readline())
    data = memoryview(WRITES[order["what"]])
    while data:
        try:
            data = data[os.write(1, data) :]
        except BrokenPipeError:
            return
    if order["number"]:
        time.sleep(60)


main()
