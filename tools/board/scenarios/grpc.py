# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""gRPC's greeting, and streams of messages, without generated code: bytes are sent as they are."""

from stage import PYTHON, expect

PORT = 9590
SERVER = """
import concurrent.futures, grpc, sys
def hello(request, context):
    return b"Hello, " + request + b"!"
def back(requests, context):
    yield from requests
class Greeter(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/helloworld.Greeter/SayHello":
            return grpc.unary_unary_rpc_method_handler(hello)
        return grpc.stream_stream_rpc_method_handler(back)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=10), handlers=[Greeter()])
assert server.add_insecure_port(f"{sys.argv[1]}:{sys.argv[2]}")
server.start()
server.wait_for_termination()
"""
CLIENT = """
import grpc, random, sys
with grpc.insecure_channel(f"{sys.argv[1]}:{sys.argv[2]}") as channel:
    if sys.argv[3] == "hello":
        for number in range(200):
            words = str(number).encode()
            assert channel.unary_unary("/helloworld.Greeter/SayHello")(words, timeout=20) == b"Hello, " + words + b"!"
    else:
        pieces = [random.Random(n).randbytes(n * 5000) for n in range(1, 100)]
        got = list(channel.stream_stream("/helloworld.Greeter/Back")(iter(pieces), timeout=40))
        assert got == pieces
print("as it was sent")
"""


class Calls:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.server = self.stage.server(PYTHON, "-c", SERVER, self.stage.address, PORT, port=PORT)

    def finish(self):
        self.server.terminate()
        self.server.wait(20)

    def talk(self, what):
        expect(self.stage.client(PYTHON, "-c", CLIENT, self.stage.address, PORT, what) == b"as it was sent\n", "other words")

    def check_hello(self):
        self.talk("hello")

    def check_streams(self):
        self.talk("streams")

    def check_several_clients(self):
        started = [self.stage.start_client(PYTHON, "-c", CLIENT, self.stage.address, PORT, "streams") for _ in range(4)]
        for process in started:
            expect(process.wait(50) == 0, self.stage.said(process))


PIECES = {"calls": Calls}
