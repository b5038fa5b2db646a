#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Runs in a root where the package has just been installed, with nothing but a loopback device.
set -eu

readonly bytes=3000000

fail() { echo "trial: $*" >&2; cat /tmp/*.log >&2 2>/dev/null || true; exit 1; }

listens() { grep -q "0100007F:$(printf %04X "$1") 00000000:0000 0A" /proc/net/tcp; }

# await COMMAND...: until it succeeds.
await() {
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "never: $*"
    sleep 0.1
  done
}

# shows PROGRAM MODE ENGINE: ddpstat has such a connection.
shows() { ddpstat --json | sed 's/},{/}\n{/g' | grep "\"program\":\"$1\"" | grep -q "\"mode\":\"$2\",\"engine\":\"$3\""; }

# redis ENGINE PORT: server and client talk DDP, and ddpstat sees both ends.
redis() {
  ddprun --require --engine "$1" -- redis-server --bind 127.0.0.1 --port "$2" --save "" >/tmp/server.log 2>&1 &
  server=$!
  await listens "$2"
  client="ddprun --require --engine $1 -- redis-cli -p $2"
  [ "$($client set key value)" = OK ] && [ "$($client get key)" = value ] || fail "redis does not answer"
  $client subscribe channel >/tmp/client.log 2>&1 &
  subscriber=$!
  await grep -q subscribe /tmp/client.log
  await shows redis-server stream "$1"
  await shows redis-cli stream "$1"
  kill $subscriber $server
  wait $subscriber $server 2>/dev/null || true
  echo "redis-server and redis-cli over DDP, engine $1, as ddpstat sees them"
}

# The examples that the package brings, compiled against its header: requests and answers, and gets by one-sided Reads;
# atomics, a Write and a Read, with an Immediate and a shared receive queue.
messages() {
  /tmp/keyvalue serve 7004 >/tmp/server.log 2>&1 &
  server=$!
  await listens 7004
  /tmp/keyvalue put 127.0.0.1 7004 apple green >/tmp/client.log || fail "put fails"
  [ "$(/tmp/keyvalue get 127.0.0.1 7004 apple)" = "green (version 1)" ] || fail "get gets something else"
  /tmp/keyvalue get 127.0.0.1 7004 apple 100000000 >/tmp/client.log 2>&1 &
  client=$!
  await shows keyvalue message shm
  ddpstat :7004
  kill $client $server
  wait $client $server 2>/dev/null || true
  /tmp/histogram serve 7005 2 >/tmp/server.log 2>&1 &
  server=$!
  await listens 7005
  printf 'abc' >/tmp/one
  printf 'cab aa' >/tmp/two
  /tmp/histogram 127.0.0.1 7005 /tmp/one >/tmp/client.log 2>&1 &
  client=$!
  [ "$(/tmp/histogram 127.0.0.1 7005 /tmp/two | tr '\n' ' ')" = "a 4 b 2 c 2 " ] || fail "the histogram is another"
  wait $client || fail "a worker fails"
  wait $server || fail "the server fails"
  echo "programs compiled against the installed header exchange messages, atomics, Writes and Reads"
}

# transfer ENGINE PORT: from one nc to another.
transfer() {
  DDPSOCK_LOG=info timeout 30 ddprun --require --engine "$1" -- nc -l -N 127.0.0.1 "$2" \
    </dev/null >/tmp/came 2>/tmp/server.log &
  server=$!
  await listens "$2"
  DDPSOCK_LOG=info timeout 30 ddprun --require --engine "$1" -- nc -N 127.0.0.1 "$2" \
    </tmp/sent 2>/tmp/client.log || fail "the client fails"
  wait $server || fail "the server fails"
  cmp /tmp/sent /tmp/came || fail "other bytes came than were sent"
  for side in client server; do
    grep -q " mode=stream engine=$1:" /tmp/$side.log || fail "the $side's connection was not served by engine $1"
  done
  echo "$bytes bytes from nc to nc over DDP, engine $1"
}

ddprun --version
for file in $(dpkg -L ddpsock); do
  case $file in
    /usr/bin/*) "$file" --help >/dev/null || fail "$file --help fails" ;;
  esac
done
for profile in $(dpkg -L ddpsock | sed -n 's|.*/profiles/\(.*\)\.toml$|\1|p'); do
  ddprun profiles | grep -q "^$profile " || fail "ddprun does not list its profile $profile"
  ddprun profiles "$profile" >/dev/null || fail "ddprun does not explain its profile $profile"
  ddprun --profile "$profile" -- true || fail "ddprun does not take its profile $profile"
done
[ -n "${profile:-}" ] || fail "there is no profile"
[ "$(/tmp/program)" = "loaded taken" ] || fail "a program linked with -lddpsock does not find it"
echo "a program linked with -lddpsock finds it"
head -c $bytes /dev/urandom >/tmp/sent
transfer shm 7000
transfer user 7001
redis shm 7002
redis user 7003
messages
