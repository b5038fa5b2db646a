// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A client and a server in plain C, for starts_test.py and faults_test.py: small enough for any
// compiler, libc and sanitizer.
//
//   exchange server [CHANGE@MOMENT]...         writes "port N", and "ok ENGINE..." when all is well
//   exchange client PORT [CHANGE@MOMENT]...    writes "ok ENGINE..."
//   exchange both [CHANGE@MOMENT]...           a server in a child, and a client
//   exchange pair [CHANGE@MOMENT]...           both in one thread
//
// What it writes goes to descriptor $EXCHANGE_OUT, or 1. A call that fails is named with its errno,
// and the status is then 1; wrong bytes give 2, and nothing else may happen.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kConnections = 2, kRounds = 7, kMostBytes = 300000, kHeader = 4 };
enum { kDdpLevel = 0x44445000, kDdpEngine = 2 };

static const unsigned kSizes[kRounds] = {1, 100, 5000, 60000, 7, 300000, 2000};
static unsigned char bytes[kHeader + kMostBytes];
static char engines[256];
static const char** changes;
static int change_count;
static int out = 1;

static void say(const char* format, ...) {
  char line[400];
  va_list values;
  va_start(values, format);
  int n = vsnprintf(line, sizeof line, format, values);
  va_end(values);
  // By a call that nothing else makes, and that faults_test.py lets be.
  const struct iovec part = {line, (size_t)n};
  syscall(SYS_pwritev2, out, &part, 1L, -1L, -1L, 0L);
}

__attribute__((noreturn)) static void fail(const char* call) {
  say("failed %s %d\n", call, errno);
  _exit(1);
}

__attribute__((noreturn)) static void wrong(const char* what) {
  say("wrong %s\n", what);
  _exit(2);
}

static void need(int is_well, const char* call) {
  if (!is_well) fail(call);
}

// What a program does to itself, or has done to it.

static void limit(int what, rlim_t value) {
  struct rlimit now;
  need(getrlimit(what, &now) == 0, "getrlimit");
  now.rlim_cur = value;
  if (value > now.rlim_max) now.rlim_max = value;
  need(setrlimit(what, &now) == 0, "setrlimit");
}

static rlim_t address_space(void) {
  char text[32] = "";
  int fd = open("/proc/self/statm", O_RDONLY);
  need(fd >= 0 && read(fd, text, sizeof text - 1) > 0, "statm");
  close(fd);
  return (rlim_t)atol(text) * (rlim_t)sysconf(_SC_PAGESIZE);
}

static int keeps_sockets_on_top;

static int place(int fd) {
  if (!keeps_sockets_on_top || fd < 0) return fd;
  struct rlimit now;
  need(getrlimit(RLIMIT_NOFILE, &now) == 0, "getrlimit");
  int top = (int)now.rlim_cur - 1;
  while (fcntl(top, F_GETFD) >= 0) --top;
  need(dup2(fd, top) == top, "dup2");
  close(fd);
  return top;
}

#ifdef EXCHANGE_STATIC
#define dlopen(library, flags) ((void)(library), (void)(flags), (void*)NULL)
#define dlerror() "static"
#define dlclose(handle) ((void)(handle), 0)
#endif

static void load(const char* library, int flags, int is_unloaded) {
  void* handle = dlopen(library, flags);
  if (handle == NULL) {
    say("failed dlopen %s\n", dlerror());
    _exit(1);
  }
  if (is_unloaded) need(dlclose(handle) == 0, "dlclose");
}

static void load_apart(const char* library) {
#if defined(LM_ID_NEWLM) && !defined(EXCHANGE_STATIC)
  void* handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
  if (handle == NULL) {
    say("failed dlmopen %s\n", dlerror());
    _exit(1);
  }
#else
  (void)library;
#endif
}

// A filter of system calls that kills for one of them. The kernel's headers are not for every libc.
static void kill_for(unsigned number) {
  const struct {
    uint16_t code;
    uint8_t then, otherwise;
    uint32_t value;
  } lines[] = {
      {0x20, 0, 0, 0}, {0x15, 0, 1, number}, {0x06, 0, 0, 0x80000000u}, {0x06, 0, 0, 0x7fff0000u}};
  const struct {
    unsigned short count;
    const void* lines;
  } program = {sizeof lines / sizeof lines[0], lines};
  need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &program, 0, 0) == 0,
       "seccomp");
}

static void change(const char* what) {
  const char* value = strchr(what, '=');
  value = value != NULL ? value + 1 : "";
#define IS(name) (strncmp(what, name, strlen(name)) == 0)
  if (IS("nofile="))
    limit(RLIMIT_NOFILE, (rlim_t)atol(value));
  else if (IS("as+"))
    limit(RLIMIT_AS, address_space() + (rlim_t)atol(what + 3));
  else if (IS("stack="))
    limit(RLIMIT_STACK, (rlim_t)atol(value));
  else if (IS("memlock="))
    limit(RLIMIT_MEMLOCK, (rlim_t)atol(value));
  else if (IS("fsize="))
    limit(RLIMIT_FSIZE, (rlim_t)atol(value));
  else if (IS("nproc="))
    limit(RLIMIT_NPROC, (rlim_t)atol(value));
  else if (IS("core="))
    limit(RLIMIT_CORE, (rlim_t)atol(value));
  else if (IS("data="))
    limit(RLIMIT_DATA, (rlim_t)atol(value));
  else if (IS("sigpending="))
    limit(RLIMIT_SIGPENDING, (rlim_t)atol(value));
  else if (IS("top"))
    keeps_sockets_on_top = 1;
  else if (IS("closed"))
    close(0), close(1), close(2);
  else if (IS("locale"))
    setlocale(LC_ALL, "");
  else if (IS("unshare="))
    need(unshare(atoi(value)) == 0, "unshare");
  else if (IS("chroot="))
    need(chroot(value) == 0 && chdir("/") == 0, "chroot");
  else if (IS("setuid="))
    need(setgid((gid_t)atoi(value)) == 0 && setuid((uid_t)atoi(value)) == 0, "setuid");
  else if (IS("prctl="))
    need(prctl(atoi(value), 1, 0, 0, 0) == 0, "prctl");
  else if (IS("kill_for="))
    kill_for((unsigned)atoi(value));
  else if (IS("mdwe"))
    need(prctl(65, 1, 0, 0, 0) == 0, "PR_SET_MDWE");
  else if (IS("dlopen="))
    load(value, RTLD_NOW, 0);
  else if (IS("dlopen_lazy="))
    load(value, RTLD_LAZY | RTLD_LOCAL, 0);
  else if (IS("dlopen_global="))
    load(value, RTLD_NOW | RTLD_GLOBAL, 0);
  else if (IS("dlopen_and_close="))
    load(value, RTLD_NOW, 1);
  else if (IS("dlmopen="))
    load_apart(value);
  else if (IS("mark"))
    getppid();
  else
    wrong("change");
#undef IS
}

// Each once.
static void reach(const char* moment) {
  static char what[500];
  for (int i = 0; i < change_count; ++i) {
    const char* at = changes[i] != NULL ? strrchr(changes[i], '@') : NULL;
    if (at == NULL || strcmp(at + 1, moment) != 0) continue;
    snprintf(what, sizeof what, "%.*s", (int)(at - changes[i]), changes[i]);
    changes[i] = NULL;
    change(what);
  }
}

// The bytes: a header with their number, and a pattern.

static unsigned char byte_of(unsigned round, unsigned at) {
  return (unsigned char)((at * 2654435761u + round * 97u) >> 11);
}

static unsigned fill(unsigned round) {
  const unsigned size = kSizes[round];
  const uint32_t header = htonl(size);
  memcpy(bytes, &header, kHeader);
  for (unsigned i = 0; i < size; ++i) bytes[kHeader + i] = byte_of(round, i);
  return kHeader + size;
}

static void wait_for(int fd, short events, unsigned way) {
  if (way % 3 == 0) {
    struct pollfd one = {fd, events, 0};
    int n;
    while ((n = poll(&one, 1, -1)) < 0 && errno == EINTR) {
    }
    need(n == 1, "poll");
  } else if (way % 3 == 1 && fd < FD_SETSIZE) {
    fd_set set;
    int n;
    do {
      FD_ZERO(&set);
      FD_SET(fd, &set);
      n = events == POLLIN ? select(fd + 1, &set, NULL, NULL, NULL)
                           : select(fd + 1, NULL, &set, NULL, NULL);
    } while (n < 0 && errno == EINTR);
    need(n == 1, "select");
  } else {
    struct epoll_event event = {events == POLLIN ? EPOLLIN : EPOLLOUT, {.fd = fd}};
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) return;  // no descriptor is left: then without
    int n;
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    while ((n = epoll_wait(set, &event, 1, -1)) < 0 && errno == EINTR) {
    }
    need(n == 1, "epoll_wait");
    close(set);
  }
}

static ssize_t put(int fd, const unsigned char* from, size_t size, unsigned way) {
  struct iovec parts[2] = {{(void*)from, size / 2}, {(void*)(from + size / 2), size - size / 2}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  switch (way % 4) {
    case 0:
      return send(fd, from, size, MSG_NOSIGNAL);
    case 1:
      return writev(fd, parts, 2);
    case 2:
      return sendmsg(fd, &message, MSG_NOSIGNAL);
    default:
      return write(fd, from, size);
  }
}

static ssize_t take(int fd, unsigned char* to, size_t size, unsigned way) {
  struct iovec parts[2] = {{to, size / 2}, {to + size / 2, size - size / 2}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  switch (way % 4) {
    case 0:
      return recv(fd, to, size, 0);
    case 1:
      return readv(fd, parts, 2);
    case 2:
      return recvmsg(fd, &message, 0);
    default:
      return read(fd, to, size);
  }
}

static void put_all(int fd, size_t size, unsigned way) {
  for (size_t sent = 0; sent < size;) {
    const ssize_t n = put(fd, bytes + sent, size - sent, way);
    if (n < 0 && errno == EINTR) continue;
    need(n > 0, "send");
    sent += (size_t)n;
  }
}

// 0: the end came instead of the first byte.
static int take_all(int fd, size_t from, size_t size, unsigned way) {
  for (size_t got = 0; got < size;) {
    const ssize_t n = take(fd, bytes + from + got, size - got, way);
    if (n < 0 && errno == EINTR) continue;
    need(n >= 0, "recv");
    if (n == 0) {
      if (got != 0) wrong("end");
      return 0;
    }
    got += (size_t)n;
  }
  return 1;
}

static void expect_pattern(unsigned round) {
  for (unsigned i = 0; i < kSizes[round]; ++i)
    if (bytes[kHeader + i] != byte_of(round, i)) wrong("byte");
}

static unsigned take_message(int fd, unsigned round) {
  uint32_t header;
  wait_for(fd, POLLIN, round);
  if (!take_all(fd, 0, kHeader, round)) return 0;
  memcpy(&header, bytes, kHeader);
  const unsigned size = ntohl(header);
  if (size != kSizes[round]) wrong("size");
  if (!take_all(fd, kHeader, size, round)) wrong("end");
  expect_pattern(round);
  return kHeader + size;
}

static void note_engine(int fd) {
  char engine[16] = "plain";
  socklen_t length = sizeof engine;
  if (getsockopt(fd, kDdpLevel, kDdpEngine, engine, &length) != 0 || engine[0] == '\0')
    strcpy(engine, "plain");
  if (strlen(engines) + strlen(engine) + 2 < sizeof engines) strcat(strcat(engines, " "), engine);
}

static struct sockaddr_in loopback(const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_port = htons((uint16_t)atoi(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static void serve_round(int fd, unsigned round) {
  const unsigned size = take_message(fd, round);
  if (size == 0) wrong("early end");
  wait_for(fd, POLLOUT, round + 1);
  put_all(fd, size, round + 1);
}

static void ask(int fd, unsigned round) {
  put_all(fd, fill(round), round);
}

static void hear(int fd, unsigned round) {
  memset(bytes, 0, sizeof bytes);
  if (take_message(fd, round) == 0) wrong("early end");
}

static void expect_end(int fd) {
  if (take_all(fd, 0, 1, 0)) wrong("byte behind the last");
}

static int open_listener(char* port) {
  struct sockaddr_in address = loopback("0");
  socklen_t length = sizeof address;
  const int fd = place(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  need(fd >= 0, "socket");
  need(bind(fd, (struct sockaddr*)&address, length) == 0, "bind");
  need(listen(fd, 8) == 0, "listen");
  need(getsockname(fd, (struct sockaddr*)&address, &length) == 0, "getsockname");
  sprintf(port, "%d", ntohs(address.sin_port));
  reach("listening");
  return fd;
}

static int accept_one(int listener) {
  int fd;
  while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 && errno == EINTR) {
  }
  need(fd >= 0, "accept");
  fd = place(fd);
  reach("accepted");
  return fd;
}

static int dial(const char* port) {
  const struct sockaddr_in address = loopback(port);
  const int fd = place(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  need(fd >= 0, "socket");
  reach("socket");
  need(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "setsockopt");
  int result = connect(fd, (const struct sockaddr*)&address, sizeof address);
  if (result != 0 && errno == EINTR) {
    struct pollfd one = {fd, POLLOUT, 0};
    int error = 0;
    socklen_t length = sizeof error;
    while (poll(&one, 1, -1) < 0 && errno == EINTR) {
    }
    need(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "getsockopt");
    errno = error;
    result = error != 0 ? -1 : 0;
  }
  need(result == 0, "connect");
  reach("connected");
  return fd;
}

static void serve(int listener) {
  for (int i = 0; i < kConnections; ++i) {
    const int fd = accept_one(listener);
    for (unsigned round = 0; round < kRounds; ++round) {
      serve_round(fd, round);
      if (round == 0) reach("first");
    }
    note_engine(fd);
    expect_end(fd);
    need(close(fd) == 0, "close");
  }
}

static void request(const char* port) {
  for (int i = 0; i < kConnections; ++i) {
    const int fd = dial(port);
    for (unsigned round = 0; round < kRounds; ++round) {
      ask(fd, round);
      hear(fd, round);
      if (round == 0) reach("first");
    }
    note_engine(fd);
    need(shutdown(fd, SHUT_WR) == 0, "shutdown");
    expect_end(fd);
    need(close(fd) == 0, "close");
  }
}

static void talk_alone(void) {
  char port[16];
  const int listener = open_listener(port);
  for (int i = 0; i < kConnections; ++i) {
    const int client = dial(port), server = accept_one(listener);
    for (unsigned round = 0; round < kRounds; ++round) {
      ask(client, round);
      serve_round(server, round);
      hear(client, round);
      if (round == 0) reach("first");
    }
    note_engine(client);
    need(shutdown(client, SHUT_WR) == 0, "shutdown");
    expect_end(server);
    need(close(server) == 0 && close(client) == 0, "close");
  }
}

static void talk_to_child(void) {
  char port[16];
  const int listener = open_listener(port);
  const pid_t self = getpid(), child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != self) _exit(3);
    serve(listener);
    _exit(0);
  }
  close(listener);
  request(port);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    say("child %d\n", status);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
}

static const char* role;
static const char* port_argument;

static void play(void) {
  char port[16];
  reach("begin");
  if (strcmp(role, "server") == 0) {
    const int listener = open_listener(port);
    say("port %s\n", port);
    serve(listener);
  } else if (strcmp(role, "client") == 0) {
    request(port_argument);
  } else if (strcmp(role, "both") == 0) {
    talk_to_child();
  } else {
    talk_alone();
  }
}

static void* play_in_thread(void* nothing) {
  play();
  return nothing;
}

static void play_in_handler(int number) {
  (void)number;
  play();
}

// All of it on a stack of `size` bytes: a thread's, or a signal handler's own.
static void play_on_stack(const char* kind, size_t size) {
  if (strcmp(kind, "thread") == 0) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    need(pthread_attr_setstacksize(&attributes, size) == 0, "pthread_attr_setstacksize");
    errno = pthread_create(&thread, &attributes, play_in_thread, NULL);
    need(errno == 0, "pthread_create");
    pthread_join(thread, NULL);
    return;
  }
  // Ends at a page that nobody may touch.
  char* room =
      mmap(NULL, 4096 + (1 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(room != MAP_FAILED && mprotect(room, 4096, PROT_NONE) == 0, "mmap");
  const stack_t stack = {.ss_sp = room + 4096, .ss_flags = 0, .ss_size = size};
  struct sigaction action = {.sa_handler = play_in_handler, .sa_flags = SA_ONSTACK};
  need(sigaltstack(&stack, NULL) == 0, "sigaltstack");
  need(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
  raise(SIGUSR1);
}

int main(int argc, char** argv) {
  const char* where = getenv("EXCHANGE_OUT");
  const char* stack = getenv("EXCHANGE_STACK");  // thread:SIZE or handler:SIZE
  if (where != NULL) out = atoi(where);
  if (argc < 2) wrong("arguments");
  role = argv[1];
  const int is_client = strcmp(role, "client") == 0;
  if (is_client && argc < 3) wrong("arguments");
  port_argument = is_client ? argv[2] : "";
  changes = (const char**)(argv + 2 + is_client);
  change_count = argc - 2 - is_client;
  // What a process of this kind gets anyhow.
  signal(SIGPIPE, SIG_IGN);
  if (stack != NULL) {
    const int is_thread = strncmp(stack, "thread:", 7) == 0;
    play_on_stack(is_thread ? "thread" : "handler", (size_t)atol(strchr(stack, ':') + 1));
  } else {
    play();
  }
  say("ok%s\n", engines);
  return 0;
}
