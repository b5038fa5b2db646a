// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How often the library holds back a cancellation: never while a process has one thread, which
// nobody can cancel, and again from the second thread on.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

static std::atomic<int> held_back{0};

// In place of libc's, for this program and its libraries.
extern "C" __attribute__((visibility("default"))) int pthread_setcancelstate(int state,
                                                                             int* before) {
  using Set = int(int, int*);
  static const auto set = reinterpret_cast<Set*>(dlsym(RTLD_NEXT, "pthread_setcancelstate"));
  held_back += state == PTHREAD_CANCEL_DISABLE ? 1 : 0;
  return set(state, before);
}

static void check(bool is_right) {
  if (!is_right) abort();
}

static int held_back_in_exchanges(int client, int server) {
  const int before = held_back;
  char bytes[8] = "message";
  for (int round = 0; round < 100; ++round) {
    check(send(client, bytes, 8, 0) == 8 && recv(server, bytes, 8, MSG_WAITALL) == 8);
    check(send(server, bytes, 8, 0) == 8 && recv(client, bytes, 8, MSG_WAITALL) == 8);
  }
  return held_back - before;
}

int main() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* name = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  check(bind(listener, name, size) == 0 && listen(listener, 1) == 0);
  check(getsockname(listener, name, &size) == 0 && connect(client, name, size) == 0);
  const int server = accept(listener, nullptr, nullptr);
  held_back_in_exchanges(client, server);
  const int alone = held_back_in_exchanges(client, server);
  std::thread([] {}).join();
  const int with_threads = held_back_in_exchanges(client, server);
  printf("alone %d, with threads %d\n", alone, with_threads);
  return alone == 0 && with_threads > 0 ? 0 : 1;
}
