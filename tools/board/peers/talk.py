# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""talk.py ADDRESS PORT FILE: sends the file, ends its direction, and writes what comes back to the standard output."""

import socket
import sys
import threading

with open(sys.argv[3], "rb") as file:
    data = file.read()
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    def send():
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    while got := connection.recv(65536):
        sys.stdout.buffer.write(got)
    thread.join()
