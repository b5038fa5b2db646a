// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FILEs on a connection, in the process that made it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Stdio : public TcpTest {
 protected:
  // A FILE on the client's end, which owns it from now on.
  void open_file(const char* mode) {
    fd_ = pair_.client.release();
    file_ = fdopen(fd_, mode);
    ASSERT_NE(file_, nullptr) << strerror(errno);
  }
  ~Stdio() override {
    if (file_ != nullptr) fclose(file_);
  }

  Pair pair_ = connected_pair();
  const int peer_ = pair_.server.get();
  int fd_ = -1;
  FILE* file_ = nullptr;
};

TEST_F(Stdio, ReadsLinesAndKnowsTheEnd) {
  open_file("r");
  send_all(peer_, "one\ntwo\nlast");
  shutdown(peer_, SHUT_WR);
  char line[16];
  EXPECT_STREQ(fgets(line, sizeof line, file_), "one\n");
  EXPECT_EQ(ungetc('X', file_), 'X');
  EXPECT_STREQ(fgets(line, sizeof line, file_), "Xtwo\n");
  EXPECT_EQ(feof(file_), 0);
  EXPECT_STREQ(fgets(line, sizeof line, file_), "last");
  EXPECT_NE(feof(file_), 0);
  EXPECT_EQ(ferror(file_), 0);
  EXPECT_EQ(fgetc(file_), EOF);
}

TEST_F(Stdio, GetlineAndFreadTakeMuch) {
  open_file("r");
  const std::string bytes = pattern(40'000, 3);
  send_all(peer_, "a line\n" + bytes);
  char* line = nullptr;
  size_t room = 0;
  EXPECT_EQ(getline(&line, &room, file_), 7);
  EXPECT_STREQ(line, "a line\n");
  free(line);
  std::string got(bytes.size(), '\0');
  EXPECT_EQ(fread(got.data(), 1, got.size(), file_), got.size());
  EXPECT_EQ(got, bytes);
}

TEST_F(Stdio, WritesWhenToldOrFull) {
  open_file("w");
  EXPECT_EQ(fprintf(file_, "%d-%s", 7, "x"), 3);
  EXPECT_EQ(queued_bytes(peer_), 0);
  EXPECT_EQ(fflush(file_), 0);
  EXPECT_EQ(recv_exactly(peer_, 3), "7-x");
  const std::string bytes = pattern(30'000, 4);
  EXPECT_EQ(fwrite(bytes.data(), 1, bytes.size(), file_), bytes.size());
  EXPECT_EQ(fflush(file_), 0);
  EXPECT_EQ(recv_exactly(peer_, bytes.size()), bytes);
}

TEST_F(Stdio, BuffersAsTold) {
  open_file("w");
  EXPECT_EQ(setvbuf(file_, nullptr, _IOLBF, BUFSIZ), 0);
  fputs("line\nrest", file_);
  EXPECT_EQ(recv_exactly(peer_, 5), "line\n");
  EXPECT_EQ(setvbuf(file_, nullptr, _IONBF, 0), 0);
  fputc('!', file_);
  EXPECT_EQ(recv_exactly(peer_, 5), "rest!");
}

TEST_F(Stdio, HasADescriptorAndNoPosition) {
  open_file("r+");
  EXPECT_EQ(fileno(file_), fd_);
  EXPECT_EQ(fseek(file_, 0, SEEK_SET), -1);
  EXPECT_EQ(errno, ESPIPE);
  EXPECT_EQ(ftell(file_), -1);
  EXPECT_EQ(errno, ESPIPE);
}

TEST_F(Stdio, AReaderOfAnEmptyNonblockingSocketFails) {
  open_file("r");
  make_nonblocking(fd_);
  errno = 0;
  EXPECT_EQ(fgetc(file_), EOF);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_NE(ferror(file_), 0);
  EXPECT_EQ(feof(file_), 0);
  clearerr(file_);
  send_all(peer_, "z");
  await_queued(fd_, 1);
  EXPECT_EQ(fgetc(file_), 'z');
}

TEST_F(Stdio, FcloseSendsTheRestAndClosesTheDescriptor) {
  open_file("w");
  fputs("last words", file_);
  EXPECT_EQ(fclose(file_), 0);
  file_ = nullptr;
  EXPECT_EQ(fcntl(fd_, F_GETFD), -1);
  EXPECT_EQ(recv_to_end(peer_), "last words");
}

TEST_F(Stdio, AModeThatIsNoneIsRefused) {
  EXPECT_EQ(fdopen(pair_.client.get(), "?"), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

int vprint(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vdprintf(fd, format, arguments);
  va_end(arguments);
  return length;
}

TEST_F(Stdio, DprintfSendsShortAndLong) {
  const int fd = pair_.client.get();
  EXPECT_EQ(dprintf(fd, "%s=%d", "n", 42), 4);
  EXPECT_EQ(vprint(fd, "<%c>", 'v'), 3);
  const std::string bytes = pattern(20'000, 5);
  std::string text;
  for (const char c : bytes) text += static_cast<char>('a' + (static_cast<unsigned char>(c) % 26));
  EXPECT_EQ(dprintf(fd, "%s", text.c_str()), 20'000);
  EXPECT_EQ(recv_exactly(peer_, 7 + text.size()), "n=42<v>" + text);
}

// A shell's builtins: descriptor 1 becomes the connection and then again what it was.
TEST_F(Stdio, StandardOutputGoesWhereTheDescriptorGoes) {
  std::array<int, 2> pipe_fds{};
  ASSERT_EQ(pipe(pipe_fds.data()), 0);
  Child child([&] {
    dup2(pipe_fds[1], 1);
    printf("before ");
    dup2(pair_.client.get(), 1);  // what waits in the buffer follows
    printf("to the peer");
    fflush(stdout);
    dup2(pipe_fds[1], 1);
    printf("to the pipe");
    fflush(stdout);
  });
  child.expect_success();
  close(pipe_fds[1]);
  EXPECT_EQ(recv_exactly(peer_, 18), "before to the peer");
  char text[64];
  const ssize_t n = read(pipe_fds[0], text, sizeof text);
  EXPECT_EQ(std::string(text, n < 0 ? 0 : static_cast<size_t>(n)), "to the pipe");
  close(pipe_fds[0]);
}

TEST_F(Stdio, StandardFilesCanBeClosedAndReopened) {
  Child child([&] {
    dup2(pair_.client.get(), 0);
    dup2(pair_.client.get(), 1);
    char line[16];
    EXPECT_STREQ(fgets(line, sizeof line, stdin), "ask\n");
    printf("answer");
    EXPECT_NE(freopen("/dev/null", "r", stdin), nullptr);
    EXPECT_EQ(fgetc(stdin), EOF);
    EXPECT_EQ(fclose(stdout), 0);
    // Useless and harmless, as in libc.
    printf("lost");
    fflush(stdout);
  });
  send_all(peer_, "ask\n");
  child.expect_success();
  pair_.client.close();
  EXPECT_EQ(recv_to_end(peer_), "answer");
}

}  // namespace
}  // namespace ddpsock::shim_tests
