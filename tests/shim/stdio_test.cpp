// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FILEs on a connection, in the process that made it.
#include <fcntl.h>
#include <locale.h>
#include <malloc.h>
#include <netdb.h>
#include <pty.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>
#include <utmp.h>
#include <wchar.h>

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

// A FILE that is there before anybody could know what its descriptor becomes.
TEST_F(Stdio, MadeBeforeTheConnection) {
  const Listener listener = listen_loopback();
  FILE* file = fdopen(make_client_socket().release(), "r+");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(connect_to(fileno(file), listener.address), 0);
  const Fd server = accept_one(listener.fd.get());
  fputs("ask\n", file);
  EXPECT_EQ(fflush(file), 0);
  EXPECT_EQ(recv_exactly(server.get(), 4), "ask\n");
  send_all(server.get(), "answer\n");
  char line[16];
  EXPECT_STREQ(fgets(line, sizeof line, file), "answer\n");
  EXPECT_EQ(fclose(file), 0);
  expect_end_of_stream(server.get());
}

class WideStdio : public Stdio {
 protected:
  WideStdio() { EXPECT_NE(setlocale(LC_CTYPE, "C.UTF-8"), nullptr); }
  ~WideStdio() override { setlocale(LC_CTYPE, "C"); }
};

TEST_F(WideStdio, IsWritten) {
  open_file("w");
  EXPECT_EQ(fwide(file_, 0), 0);
  EXPECT_EQ(fwprintf(file_, L"%d \u00e9%ls", 7, L"\u20ac"), 4);
  EXPECT_EQ(fputwc(L'\n', file_), wint_t{L'\n'});
  EXPECT_GE(fputws(L"\u4e2d, the end", file_), 0);
  EXPECT_GT(fwide(file_, 0), 0);
  EXPECT_EQ(fputs("not bytes", file_), EOF);
  EXPECT_EQ(fflush(file_), 0);
  const std::string expected = "7 \u00e9\u20ac\n\u4e2d, the end";
  EXPECT_EQ(recv_exactly(peer_, expected.size()), expected);
  const std::wstring much(100'000, L'\u00fc');
  EXPECT_GE(fputws(much.c_str(), file_), 0);
  EXPECT_EQ(fclose(file_), 0);
  file_ = nullptr;
  EXPECT_EQ(fcntl(fd_, F_GETFD), -1);
  const std::string bytes = recv_to_end(peer_);
  EXPECT_EQ(bytes.size(), 200'000u);
  EXPECT_EQ(bytes.substr(bytes.size() - 2), "\u00fc");
}

TEST_F(WideStdio, IsRead) {
  open_file("r");
  send_all(peer_, "\u00e9a line\nand 42 more: \u20ac\nrest");
  EXPECT_EQ(fgetwc(file_), wint_t{L'\u00e9'});
  EXPECT_EQ(ungetwc(L'\u4e2d', file_), wint_t{L'\u4e2d'});
  wchar_t line[32], word[32];
  int number = 0;
  EXPECT_STREQ(fgetws(line, 32, file_), L"\u4e2da line\n");
  EXPECT_EQ(fwscanf(file_, L"and %d more: %ls", &number, word), 2);
  EXPECT_EQ(number, 42);
  EXPECT_STREQ(word, L"\u20ac");
  EXPECT_EQ(fgetc(file_), EOF) << "not for bytes";
  shutdown(peer_, SHUT_WR);
  EXPECT_EQ(getwc(file_), wint_t{L'\n'});
  EXPECT_STREQ(fgetws(line, 32, file_), L"rest");
  EXPECT_EQ(fgetwc(file_), WEOF);
  EXPECT_NE(feof(file_), 0);
}

TEST_F(WideStdio, AFileInUseForBytesRefusesIt) {
  open_file("r+");
  fputs("bytes", file_);
  EXPECT_LT(fwide(file_, 1), 0);
  EXPECT_EQ(fputwc(L'x', file_), WEOF);
  EXPECT_EQ(fwprintf(file_, L"%d", 7), -1);
  wchar_t line[8];
  EXPECT_EQ(fgetws(line, 8, file_), nullptr);
  fputs(" again", file_);
  EXPECT_EQ(fflush(file_), 0);
  EXPECT_EQ(recv_exactly(peer_, 11), "bytes again");
}

TEST_F(WideStdio, StandardFilesAreReadAndWritten) {
  Child child([&] {
    EXPECT_NE(freopen("/dev/null", "w", stdout), nullptr);  // gtest has used it for bytes
    dup2(pair_.client.get(), 0);
    dup2(pair_.client.get(), 1);
    wchar_t line[16];
    EXPECT_STREQ(fgetws(line, 16, stdin), L"\u00e9?\n");
    EXPECT_EQ(wprintf(L"<%ls>", line), 5);
    EXPECT_EQ(putwchar(L'\u00fc'), wint_t{L'\u00fc'});
    EXPECT_GT(fwide(stdout, 0), 0);
    EXPECT_EQ(fflush(stdout), 0);
    EXPECT_EQ(fclose(stdout), 0);
  });
  send_all(peer_, "\u00e9?\n");
  child.expect_success();
  pair_.client.close();
  EXPECT_EQ(recv_to_end(peer_), "<\u00e9?\n>\u00fc");
}

TEST_F(WideStdio, StandardOutputInUseForItGoesWhereTheDescriptorGoes) {
  Child child([&] {
    EXPECT_NE(freopen("/dev/null", "w", stdout), nullptr);
    wprintf(L"before ");
    fflush(stdout);
    dup2(pair_.client.get(), 1);
    wprintf(L"to the p\u00e9\u00e9r");
    fflush(stdout);
  });
  child.expect_success();
  pair_.client.close();
  EXPECT_EQ(recv_to_end(peer_), "to the p\u00e9\u00e9r");
}

TEST_F(WideStdio, LeavesNothingWhenItIsClosed) {
  size_t before = 0;
  for (int i = 0; i < 60; ++i) {
    if (i == 10) before = mallinfo2().uordblks;
    Pair pair = connected_pair();
    FILE* file = fdopen(pair.client.release(), "w");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(fputwc(L'x', file), wint_t{L'x'});
    EXPECT_EQ(fclose(file), 0);
    EXPECT_EQ(recv_to_end(pair.server.get()), "x");
  }
  EXPECT_LT(mallinfo2().uordblks, before + 10'000);
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

// libc writes those lines by itself.
TEST_F(Stdio, SyslogSaysItsLinesToAConnectionToo) {
  std::array<int, 2> pipe_fds{};
  ASSERT_EQ(pipe(pipe_fds.data()), 0);
  Child child([&] {
    openlog("first", LOG_PERROR, LOG_USER);
    dup2(pair_.client.get(), 2);
    syslog(LOG_INFO, "%s", std::string(2'000, 'x').c_str());
    openlog("second", LOG_PERROR | LOG_PID, LOG_USER);
    errno = ENOENT;
    const std::string reason = "%s%m\n";  // which is libc's own
    syslog(LOG_INFO, reason.c_str(), "");
    setlogmask(LOG_UPTO(LOG_ERR));
    syslog(LOG_INFO, "masked");
    closelog();
    syslog(LOG_ERR, "nobody");
    dup2(pipe_fds[1], 2);
    syslog(LOG_ERR, "to the pipe");
  });
  const std::string pid = "[" + std::to_string(child.pid()) + "]: ";
  child.expect_success();
  pair_.client.close();
  close(pipe_fds[1]);
  EXPECT_EQ(recv_to_end(peer_), "first: " + std::string(2'000, 'x') + "\nsecond" + pid +
                                    "No such file or directory\n" + program_invocation_short_name +
                                    pid + "nobody\n");
  char text[64];
  const ssize_t n = read(pipe_fds[0], text, sizeof text);
  EXPECT_EQ(std::string(text, n < 0 ? 0 : static_cast<size_t>(n)),
            program_invocation_short_name + pid + "to the pipe\n");
  close(pipe_fds[0]);
}

TEST_F(Stdio, PerrorSaysItToAConnectionToo) {
  Child child([&] {
    dup2(pair_.client.get(), 2);
    errno = ENOENT;
    perror("why");
    errno = ENOENT;
    perror(nullptr);
    h_errno = HOST_NOT_FOUND;
    herror("who");
  });
  child.expect_success();
  pair_.client.close();
  EXPECT_EQ(recv_to_end(peer_),
            "why: No such file or directory\nNo such file or directory\nwho: Unknown host\n");
}

// libc puts other things in the place of the descriptors by itself.
TEST_F(Stdio, ADaemonLeavesItsConnection) {
  std::array<int, 2> pipe_fds{};
  ASSERT_EQ(pipe(pipe_fds.data()), 0);
  expect_alive(pair_.client.get(), peer_);
  Child child([&] {
    for (int fd = 0; fd <= 2; ++fd) dup2(pair_.client.get(), fd);
    pair_.client.close();
    if (daemon(1, 0) != 0) _exit(1);
    char byte;
    const bool is_nowhere = write(1, "lost", 4) == 4 && read(0, &byte, 1) == 0;
    _exit(write(pipe_fds[1], is_nowhere ? "y" : "n", 1) == 1 ? 0 : 1);
  });
  child.expect_success();
  pair_.client.close();
  EXPECT_EQ(recv_to_end(peer_), "");
  char answer = 0;
  EXPECT_EQ(read(pipe_fds[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST_F(Stdio, ATerminalTakesTheConnectionsPlace) {
  expect_alive(pair_.client.get(), peer_);
  int master = -1, terminal = -1;
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const auto said = [](int fd) {
    char text[64];
    const ssize_t n = read(fd, text, sizeof text);
    return std::string(text, n < 0 ? 0 : static_cast<size_t>(n));
  };
  Child child([&] {
    for (int fd = 0; fd <= 2; ++fd) dup2(pair_.client.get(), fd);
    if (login_tty(terminal) != 0 || write(1, "login", 5) != 5) _exit(1);
    char byte;
    _exit(read(0, &byte, 1) == 1 ? 0 : 1);  // the terminal goes with its last process
  });
  EXPECT_EQ(said(master), "login");
  EXPECT_EQ(write(master, "\n", 1), 1);
  child.expect_success();
  close(master);
  close(terminal);
  Child parent([&] {
    for (int fd = 0; fd <= 2; ++fd) dup2(pair_.client.get(), fd);
    int own_master = -1;
    const pid_t grandchild = forkpty(&own_master, nullptr, nullptr, nullptr);
    if (grandchild < 0) _exit(1);
    if (grandchild == 0) {
      char byte;
      _exit(write(1, "fork", 4) == 4 && read(0, &byte, 1) == 1 ? 0 : 1);
    }
    const bool is_there = said(own_master) == "fork" && write(own_master, "\n", 1) == 1;
    int status = 1;
    waitpid(grandchild, &status, 0);
    _exit(is_there && status == 0 && write(1, "peer", 4) == 4 ? 0 : 1);
  });
  parent.expect_success();
  pair_.client.close();
  EXPECT_EQ(recv_to_end(peer_), "peer");
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
