// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// elsewhere COMMAND...: runs it as elsewhere.h says. 77, which meson counts as skipped, where this
// user may not make namespaces.
#include "elsewhere.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using ddpsock::shim_tests::kNamespaceElsewhere;
using ddpsock::shim_tests::kNamespaceHere;

constexpr int kSkipped = 77;

[[noreturn]] void skip(const char* what) {
  fprintf(stderr, "elsewhere: %s: %s\n", what, strerror(errno));
  exit(kSkipped);
}

void write_file(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) != ssize_t(text.size())) skip(path);
  close(fd);
}

// A user who may not make namespaces may be the superuser of one, and stays it over exec.
void become_superuser() {
  const std::string uid = std::to_string(geteuid()), gid = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER) != 0) skip("unshare(CLONE_NEWUSER)");
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", "0 " + uid + " 1");
  write_file("/proc/self/gid_map", "0 " + gid + " 1");
}

void enter_new_namespace(int number) {
  if (unshare(CLONE_NEWNET) != 0) skip("unshare(CLONE_NEWNET)");
  const int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || dup2(fd, number) < 0) skip("/proc/self/ns/net");
  close(fd);
  if (system("ip link set lo up") != 0) skip("ip");
}

void run(const std::string& command) {
  if (system(command.c_str()) != 0) skip(command.c_str());
}

// A device that is up takes packets only once its peer is, which the kernel notes a little later.
void await_running(const char* device) {
  ifreq request{};
  strcpy(request.ifr_name, device);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (int tries = 0; tries < 1000; ++tries) {
    if (ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) != 0) {
      close(fd);
      return;
    }
    usleep(1000);
  }
  skip(device);
}

// Registered sockets of namespaces that end with this stay for a while, and shall be in nobody's
// way.
void hide_registry() {
  if (unshare(CLONE_NEWNS) != 0) skip("unshare(CLONE_NEWNS)");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) skip("mount");
  if (mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) != 0) skip("/dev/shm");
  unsetenv("DDPSOCK_REGISTRY_DIR");
}

void enter(int number) {
  if (setns(number, CLONE_NEWNET) != 0) skip("setns");
}

// A segment as large as the loopback's, so that sizes are no other matter than there.
void join() {
  const std::string here =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(kNamespaceHere);
  run("ip link add there mtu 65535 type veth peer name here mtu 65535 netns " + here +
      " && ip addr add " DDPSOCK_TESTS_ADDRESS_ELSEWHERE "/24 dev there && ip link set there up");
  enter(kNamespaceHere);
  run("ip addr add " DDPSOCK_TESTS_ADDRESS_HERE "/24 dev here && ip link set here up");
  await_running("here");
  enter(kNamespaceElsewhere);
  await_running("there");
  enter(kNamespaceHere);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fprintf(stderr, "usage: elsewhere COMMAND...\n"), 2;
  if (geteuid() != 0) become_superuser();
  hide_registry();
  enter_new_namespace(kNamespaceHere);
  enter_new_namespace(kNamespaceElsewhere);
  join();
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
