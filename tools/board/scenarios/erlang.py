# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Erlang: its own poller of sockets, on both sides."""

from stage import expect

PORT = 9390
SERVER = """
{{ok, Listener}} = gen_tcp:listen({port}, [binary, {{ip, {ip}}}, {{active, false}}, {{reuseaddr, true}}, {{backlog, 64}}]),
Echo = fun Echo(Socket) -> case gen_tcp:recv(Socket, 0) of {{ok, Data}} -> gen_tcp:send(Socket, Data), Echo(Socket); _ -> gen_tcp:close(Socket) end end,
Loop = fun Loop() -> {{ok, Socket}} = gen_tcp:accept(Listener),
  Pid = spawn(fun() -> receive go -> Echo(Socket) end end), gen_tcp:controlling_process(Socket, Pid), Pid ! go, Loop() end,
Loop().
"""
CLIENT = """
{{ok, Data}} = file:read_file("{file}"),
Talk = fun() ->
  {{ok, Socket}} = gen_tcp:connect({ip}, {port}, [binary, {{active, {active}}}, {{exit_on_close, false}}]),
  spawn_link(fun() -> ok = gen_tcp:send(Socket, Data), ok = gen_tcp:shutdown(Socket, write) end),
  Take = fun Take(Found) -> {take} end,
  Got = iolist_to_binary(lists:reverse(Take([]))),
  Got == Data
end,
Self = self(),
[spawn_link(fun() -> Self ! {{done, Talk()}} end) || _ <- lists:seq(1, {count})],
Answers = [receive {{done, Answer}} -> Answer end || _ <- lists:seq(1, {count})],
io:format("~p~n", [lists:all(fun(X) -> X end, Answers)]),
halt().
"""
PASSIVE = "case gen_tcp:recv(Socket, 0, 30000) of {ok, Piece} -> Take([Piece | Found]); {error, closed} -> Found end"
ACTIVE = "receive {tcp, Socket, Piece} -> Take([Piece | Found]); {tcp_closed, Socket} -> Found after 30000 -> Found end"
ONCE = "inet:setopts(Socket, [{active, once}]), " + ACTIVE


class Tcp:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.ip = "{" + self.stage.address.replace(".", ",") + "}"
        self.data = self.stage.data("data", 4 << 20)
        self.server = self.stage.server("erl", "-noinput", "-boot", "start_clean", "-eval", SERVER.format(port=PORT, ip=self.ip), port=PORT)

    def finish(self):
        self.stage.stop(self.server)

    def talk(self, active, take, count=1):
        said = self.stage.client("erl", "-noinput", "-boot", "start_clean", "-eval",
                                 CLIENT.format(file=self.data, ip=self.ip, port=PORT, active=active, take=take, count=count))
        expect(said == b"true\n", said.decode(errors="replace"))

    def check_passive(self):
        self.talk("false", PASSIVE)

    def check_active(self):
        self.talk("true", ACTIVE)

    def check_active_once(self):
        self.talk("false", ONCE)

    def check_many_at_once(self):
        self.talk("true", ACTIVE, 10)


PIECES = {"tcp": Tcp}
