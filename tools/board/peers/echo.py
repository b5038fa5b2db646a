# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""echo.py ADDRESS PORT: sends back what it is sent, and ends a connection as its client does."""

import socketserver
import sys


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


with Server((sys.argv[1], int(sys.argv[2])), Echo) as server:
    server.serve_forever()
