# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""asyncio on libuv."""

from stage import PYTHON, expect

PORT = 9490
HEAD = "import asyncio, sys, uvloop\nuvloop.install()\n"
SERVER = HEAD + """
async def echo(reader, writer):
    while data := await reader.read(70000):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()
asyncio.run(main())
"""
CLIENT = HEAD + """
data = open(sys.argv[3], "rb").read()
async def talk():
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    got = await reader.read(-1)
    await sending
    writer.close()
    return got == data
async def main():
    print(all(await asyncio.gather(*(talk() for _ in range(int(sys.argv[4]))))))
asyncio.run(main())
"""


class Streams:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.data = self.stage.data("data", 8 << 20)
        self.server = self.stage.server(PYTHON, "-c", SERVER, self.stage.address, PORT, port=PORT)

    def finish(self):
        self.stage.stop(self.server)

    def talk(self, count):
        said = self.stage.client(PYTHON, "-c", CLIENT, self.stage.address, PORT, self.data, count)
        expect(said == b"True\n", said.decode(errors="replace"))

    def check_one(self):
        self.talk(1)

    def check_many(self):
        self.talk(10)


PIECES = {"streams": Streams}
