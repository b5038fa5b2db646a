// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What an epoll set holds beside the streams that memory_look.h looks at, so that the kernel can
// be asked about these alone: the set itself would answer with every stream whose bell lies unread.
#ifndef DDPSOCK_SHIM_POLLERS_OTHER_MEMBERS_H_
#define DDPSOCK_SHIM_POLLERS_OTHER_MEMBERS_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

namespace ddpsock::shim {

class OtherMembers {
 public:
  // As many are known one by one. Where there are more, all that is said here is "maybe".
  static constexpr unsigned kMost = 32;

  // What `set` holds now, as the kernel lists it (/proc). Forgets what was known.
  void learn(int set);
  // Does the kernel list `fd` as a member of `set`? True where it cannot be asked.
  static bool is_listed(int set, int fd);
  // After EPOLL_CTL_ADD or MOD.
  void add(int fd, const epoll_event& event);
  void remove(int fd);

  unsigned count() const;
  bool is_any() const;
  // Is one of those that are known one by one watched with this data?
  bool has_data(uint64_t data) const;

  // Could one be ready, or one of `streams` be readable? False is certain, but for a descriptor
  // that was closed while a duplicate keeps it in the set. One system call, none if there is
  // nothing to ask about.
  bool may_be_ready(std::span<const int> streams);

  // The kernel reports one.
  void note_report();
  // Something that was ready will be so again before long.
  bool was_reported_lately() const;

 private:
  struct Member {
    std::atomic<int> fd;  // plus 1; 0: free
    std::atomic<uint32_t> events;
    std::atomic<uint64_t> data;
  };

  void learn_line(const char* line);

  std::atomic<bool> has_more_;
  std::atomic<unsigned> end_;        // places from here on were never used
  std::atomic<int64_t> busy_until_;  // nanoseconds
  std::array<Member, kMost> members_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_OTHER_MEMBERS_H_
