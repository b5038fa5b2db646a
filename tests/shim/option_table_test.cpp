// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// doc/options.md, line by line: what a program asks of a connection is answered as by plain TCP,
// which is asked beside it, except where the table says what is answered instead. What the kernel
// knows and the table does not, shows.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/kernel_call.h"
#include "ddpsock/ddpsock.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr int kIoctl = -1, kFcntl = -2;
const std::map<std::string, int> kLevels{{"SOL_SOCKET", SOL_SOCKET}, {"IPPROTO_TCP", IPPROTO_TCP},
                                         {"IPPROTO_IP", IPPROTO_IP}, {"IPPROTO_IPV6", IPPROTO_IPV6},
                                         {"ioctl", kIoctl},          {"fcntl", kFcntl}};

enum class Fate : uint8_t { kForwarded, kKept, kLeaves, kRefused };

struct Row {
  std::string level_name, name;
  int level, number;
  std::string tried;  // "" : asked only
  bool is_own;        // each socket has an answer of its own, or each moment
  Fate fate;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream rest(line);
  std::string cell;
  std::getline(rest, cell, '|');
  while (std::getline(rest, cell, '|')) {
    const size_t from = cell.find_first_not_of(' '), to = cell.find_last_not_of(' ');
    cells.push_back(from == cell.npos ? "" : cell.substr(from, to - from + 1));
  }
  return cells;
}

Fate fate_of(const std::string& word) {
  if (word == "forwarded") return Fate::kForwarded;
  if (word == "kept") return Fate::kKept;
  if (word == "leaves") return Fate::kLeaves;
  EXPECT_EQ(word, "refused");
  return Fate::kRefused;
}

// Lines of six cells that begin with a level.
std::vector<Row> read_table() {
  std::vector<Row> rows;
  std::ifstream file(OPTIONS_TABLE);
  EXPECT_TRUE(file.is_open()) << OPTIONS_TABLE;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != 6 || !kLevels.contains(cells[0])) continue;
    std::string tried = cells[3];
    const bool is_own = tried.ends_with("~");
    if (is_own) tried.pop_back();
    rows.push_back({cells[0], cells[1], kLevels.at(cells[0]),
                    static_cast<int>(std::stoul(cells[2], nullptr, 0)), tried, is_own,
                    fate_of(cells[4])});
  }
  return rows;
}

// Numbers, or a word, as bytes.
std::string bytes_of(const std::string& tried) {
  if (tried == "filter") {  // lets all pass
    static sock_filter pass[] = {BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
    const sock_fprog program{1, pass};
    return {reinterpret_cast<const char*>(&program), sizeof program};
  }
  if (tried.starts_with('"')) return tried.substr(1, tried.size() - 2);
  std::string bytes;
  std::stringstream words(tried);
  for (long word; words >> word;) {
    const int value = static_cast<int>(word);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

// What a call says.
struct Answer {
  long result = 0;
  int error = 0;
  std::string value;
  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& a, std::ostream* out) {
  *out << a.result << " " << (a.error != 0 ? strerrorname_np(a.error) : "") << " ";
  for (const char c : a.value) *out << std::hex << (static_cast<unsigned>(c) & 0xff) << " ";
}

template <typename Call>
Answer ask(Call call) {
  Answer answer;
  errno = 0;
  answer.result = call();
  if (answer.result < 0) answer.error = errno;
  return answer;
}

constexpr size_t kRoom = 512;

// By libc, or by the system call itself, past any library.
Answer get(int fd, const Row& row, bool is_raw) {
  std::string room(kRoom, '\xa5');
  socklen_t length = kRoom;
  Answer answer = ask([&]() -> long {
    return is_raw
               ? base::kernel_call(SYS_getsockopt, fd, row.level, row.number, room.data(), &length)
               : getsockopt(fd, row.level, row.number, room.data(), &length);
  });
  if (answer.result == 0) answer.value = room.substr(0, length);
  return answer;
}

Answer set(int fd, const Row& row, const std::string& bytes, bool is_raw) {
  const auto length = static_cast<socklen_t>(bytes.size());
  return ask([&]() -> long {
    return is_raw
               ? base::kernel_call(SYS_setsockopt, fd, row.level, row.number, bytes.data(), length)
               : setsockopt(fd, row.level, row.number, bytes.data(), length);
  });
}

Answer control(int fd, const Row& row, bool is_raw) {
  std::string room = bytes_of(row.tried);
  const long number = row.number;
  long word = 0;
  memcpy(&word, room.data(), std::min(room.size(), sizeof(int)));
  room.resize(kRoom);
  Answer answer = ask([&]() -> long {
    if (row.level == kFcntl)
      return is_raw ? base::kernel_call(SYS_fcntl, fd, number, word) : fcntl(fd, row.number, word);
    return is_raw ? base::kernel_call(SYS_ioctl, fd, number, room.data())
                  : ioctl(fd, static_cast<unsigned long>(number), room.data());
  });
  if (row.level == kIoctl) answer.value = room.substr(0, 16);
  return answer;
}

bool is_stream(int fd) {
  ddp_status status{};
  socklen_t length = sizeof status;
  return getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &length) == 0 &&
         status.mode == DDP_MODE_STREAM;
}

Fd raw_socket(int family) {
  return Fd(static_cast<int>(
      base::kernel_call(SYS_socket, family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP)));
}

struct Loopback {
  explicit Loopback(int family) {
    if (family == AF_INET6) {
      auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
      v6->sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in*>(&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    address.ss_family = static_cast<sa_family_t>(family);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
  sockaddr_storage address{};
  socklen_t length = sizeof address;
};

// Two ends behind the library's back, in every column.
Pair plain_pair(int family) {
  const Fd listener = raw_socket(family);
  Loopback at(family);
  EXPECT_EQ(base::kernel_call(SYS_bind, listener.get(), at.get(), at.length), 0);
  EXPECT_EQ(base::kernel_call(SYS_listen, listener.get(), 1), 0);
  EXPECT_EQ(base::kernel_call(SYS_getsockname, listener.get(), at.get(), &at.length), 0);
  Pair pair;
  pair.client = raw_socket(family);
  EXPECT_EQ(base::kernel_call(SYS_connect, pair.client.get(), at.get(), at.length), 0);
  pair.server = Fd(static_cast<int>(
      base::kernel_call(SYS_accept4, listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  return pair;
}

// By libc's calls, in every column.
Pair pair_of(int family) {
  const Fd listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Loopback at(family);
  EXPECT_EQ(bind(listener.get(), at.get(), at.length), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), at.get(), &at.length), 0);
  Pair pair;
  pair.client = Fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(pair.client.get(), at.get(), at.length), 0);
  pair.server = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return pair;
}

bool has_ipv6() {
  const Fd fd = raw_socket(AF_INET6);
  Loopback at(AF_INET6);
  return base::kernel_call(SYS_bind, fd.get(), at.get(), at.length) == 0;
}

class OptionTable : public TcpTest {
 protected:
  static bool is_refused(const Row& row) {
    if (!is_in_ddp_mode()) return false;
    // Connections with one-sided operations do not leave.
    return row.fate == Fate::kRefused ||
           (row.fate == Fate::kLeaves && column() == Column::kOneSided);
  }

  // The end that the program's own calls made.
  static int own_end(const Pair& pair) {
    return column() == Column::kRawClient || column() == Column::kUndecided ? pair.server.get()
                                                                            : pair.client.get();
  }

  // Both in the same state: a conversation has been.
  static void expect_as_on_plain_tcp(const Row& row) {
    const bool is_v6 = row.level == IPPROTO_IPV6;
    const int family = is_v6 ? AF_INET6 : AF_INET;
    const Pair pair = is_v6 ? pair_of(family) : connected_pair(), twin = plain_pair(family);
    for (int i = 0; i < 3; ++i) expect_alive(pair.client.get(), pair.server.get());
    const bool is_server = own_end(pair) == pair.server.get() && !is_v6;
    const int fd = is_server ? pair.server.get() : pair.client.get();
    const int plain = is_server ? twin.server.get() : twin.client.get();
    const bool was_stream = is_stream(fd);
    if (!is_v6) {
      EXPECT_EQ(was_stream, is_in_ddp_mode());
    }
    if (row.tried == "-") return;
    if (row.level < 0) {
      expect_same(row, control(fd, row, false), control(plain, row, true));
    } else {
      const Answer before = get(fd, row, false);
      if (!(is_refused(row) && before.error == ENOPROTOOPT))
        expect_same(row, before, get(plain, row, true));
      if (!row.tried.empty()) set_both(row, fd, plain);
    }
    const bool has_left = row.fate == Fate::kLeaves && !is_refused(row);
    EXPECT_EQ(is_stream(fd), was_stream && !has_left);
    // What the library refuses may well stop a plain connection.
    if (row.fate != Fate::kRefused || is_refused(row)) expect_to_work(pair);
  }

  static void set_both(const Row& row, int fd, int plain) {
    const Answer on_plain = set(plain, row, bytes_of(row.tried), true);
    const Answer here = set(fd, row, bytes_of(row.tried), false);
    if (is_refused(row)) {
      EXPECT_EQ(here, (Answer{-1, ENOPROTOOPT, ""}));
      return;
    }
    EXPECT_EQ(here, on_plain);
    expect_same(row, get(fd, row, false), get(plain, row, true));
    // Of the other levels one byte is a value.
    if (row.level == SOL_SOCKET || row.level == IPPROTO_TCP) {
      EXPECT_EQ(set(fd, row, "ab", false), set(plain, row, "ab", true)) << "with a length of 2";
    }
  }

  static void expect_same(const Row& row, Answer here, Answer there) {
    if (row.is_own) {
      if (row.level < 0) here.result = there.result = 0;
      EXPECT_EQ(here.value.size(), there.value.size());
      here.value = there.value = "";
    }
    EXPECT_EQ(here, there);
  }

  static void expect_to_work(const Pair& pair) {
    const std::string bytes = pattern(5'000, 9);
    send_all(pair.client.get(), bytes);
    EXPECT_TRUE(is_same(recv_exactly(pair.server.get(), bytes.size()), bytes));
    send_all(pair.server.get(), bytes);
    EXPECT_TRUE(is_same(recv_exactly(pair.client.get(), bytes.size()), bytes));
  }

  const std::vector<Row> rows_ = read_table();
};

TEST_F(OptionTable, HoldsOnAConnection) {
  ASSERT_GT(rows_.size(), 100u);
  const bool has_v6 = has_ipv6();
  for (const Row& row : rows_) {
    if (row.level == IPPROTO_IPV6 && !has_v6) continue;
    start_deadline();
    SCOPED_TRACE(row.level_name + " " + row.name);
    expect_as_on_plain_tcp(row);
  }
}

// They depend on what is loaded.
bool is_of_firewall(int level, int number) {
  constexpr int kIpv6s[] = {64, 65, 68, 69, 80};
  return level == IPPROTO_IP     ? number >= 64 && number < 100
         : level == IPPROTO_IPV6 ? std::ranges::find(kIpv6s, number) != std::end(kIpv6s)
                                 : false;
}

TEST_F(OptionTable, NamesWhatTheKernelKnows) {
  if (column() != Column::kNative) GTEST_SKIP() << "the kernel is the same in each column";
  std::set<std::pair<int, int>> named;
  for (const Row& row : rows_) named.insert({row.level, row.number});
  constexpr int kMost = 160;
  for (const auto& [level_name, level] : kLevels) {
    if (level < 0) continue;
    for (int number = 0; number < kMost; ++number) {
      if (is_of_firewall(level, number)) continue;
      const Fd fd(
          socket(level == IPPROTO_IPV6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const Row row{level_name, "", level, number, "", false, Fate::kForwarded};
      const Answer asked = get(fd.get(), row, true);
      const Answer told = set(fd.get(), row, bytes_of("0"), true);
      const bool is_known = asked.error != ENOPROTOOPT || told.error != ENOPROTOOPT;
      EXPECT_TRUE(!is_known || named.contains({level, number}))
          << level_name << " " << number << " is not in the table";
    }
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
