// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/calls/stdio_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "shim/calls.h"
#include "shim/calls/exit.h"
#include "shim/calls/leaving.h"
#include "shim/connection.h"
#include "shim/fd_table.h"
#include "shim/real.h"

// libc's; its header declares it only to programs compiled with fortification.
extern "C" int __vsnprintf_chk(char* text, size_t size, int flag, size_t room, const char* format,
                               va_list arguments);
extern "C" FILE _IO_2_1_stderr_ __attribute__((weak));

namespace ddpsock::shim {
namespace {

int fd_of(void* cookie) {
  return static_cast<int>(reinterpret_cast<intptr_t>(cookie));
}

ssize_t read_file(void* cookie, char* buffer, size_t size) {
  const int fd = fd_of(cookie);
  return is_ours(fd) ? chosen_read(fd, buffer, size) : real.read(fd, buffer, size);
}

// All of it, or what was written before an error.
ssize_t write_file(void* cookie, const char* bytes, size_t size) {
  const int fd = fd_of(cookie);
  size_t written = 0;
  while (written < size) {
    const ssize_t n = is_ours(fd) ? chosen_write(fd, bytes + written, size - written)
                                  : real.write(fd, bytes + written, size - written);
    if (n < 0) break;
    written += static_cast<size_t>(n);
  }
  if (is_ours(fd)) prepare_again(fd);
  return static_cast<ssize_t>(written);
}

int seek_file(void*, off64_t*, int) {
  errno = ESPIPE;
  return -1;
}

// For fclose(), which libc does not let be cancelled there.
int close_fd(int fd) {
  const base::UncancelledCall whole;
  return is_ours(fd) ? chosen_close(fd) : real.close(fd);
}

int close_file(void* cookie) {
  return close_fd(fd_of(cookie));
}

FILE* open_cookie(void* cookie, const char* mode, int fd, cookie_close_function_t* close) {
  FILE* file = fopencookie(cookie, mode, {read_file, write_file, seek_file, close});
  if (file == nullptr) return nullptr;
  file->_fileno = fd;  // fileno() answers from here
  // fit_for_wide() knows it by that, and freopen() would make an ordinary FILE of it and believes
  // any other pointer.
  file->_wide_data = nullptr;
  return file;
}

bool is_plain(int fd) {
  const SocketUse use(fd);
  return !use || use.phase() == Phase::kPlain;
}

// One of stdin, stdout and stderr: the variable, libc's FILE that was in it, and ours.
struct Standard {
  FILE** variable;
  FILE* original = nullptr;
  FILE* ours = nullptr;
};
Standard standard[] = {{&stdin}, {&stdout}, {&stderr}};

// freopen() closes the descriptor of a FILE that lives on; libc marks it so meanwhile.
constexpr int kClosedForReopen = 32;

// libc never frees its three FILEs, and programs use them after fclose(), for nothing. So the
// original takes its place again, closed.
int close_standard(void* cookie) {
  const int fd = fd_of(cookie);
  Standard& one = standard[fd];
  if ((static_cast<unsigned>((*one.variable)->_flags2) & kClosedForReopen) == 0) {
    one.original->_fileno = -1;
    *one.variable = one.original;
  }
  one.ours = nullptr;
  return close_fd(fd);
}

// What libc's FILE read ahead or has not written yet belongs to the descriptor's next owner.
void move_bytes(FILE* from, FILE* to) {
  for (const char* p = from->_IO_read_end; p > from->_IO_read_ptr; --p) ungetc(p[-1] & 0xff, to);
  fwrite(from->_IO_write_base, 1, __fpending(from), to);
  __fpurge(from);
}

void replace(Standard& one, int fd) {
  FILE* original = *one.variable;
  FILE* file = open_cookie(reinterpret_cast<void*>(intptr_t{fd}), fd == STDIN_FILENO ? "r" : "w",
                           fd, close_standard);
  if (file == nullptr) return;
  if (fd == STDERR_FILENO) {
    setvbuf(file, nullptr, _IONBF, 0);
  } else if (__flbf(original) != 0) {
    setvbuf(file, nullptr, _IOLBF, BUFSIZ);
  }
  move_bytes(original, file);
  one.original = original;
  one.ours = *one.variable = file;
}

// ----- wide characters

constexpr char kWhyWide[] = "wide characters through stdio";
// libc's names for them are not for others.
constexpr int kEndSeen = 0x10, kErrorSeen = 0x20, kPutting = 0x800;

// Natively it would have no orientation yet.
bool is_unused(const FILE& file) {
  return (file._flags & (kEndSeen | kErrorSeen | kPutting)) == 0 &&
         file._IO_read_base == file._IO_read_end && file._IO_save_base == nullptr;
}

// What libc's calls for wide characters look at before they refuse a FILE for bytes.
void refuse_wide(FILE& file) {
  file._mode = -1;
  if (file._wide_data == nullptr) file._wide_data = _IO_2_1_stderr_._wide_data;
}

// A FILE of ours that is libc's by now uses what libc has made for another, until it is closed.
struct Borrowed {
  FILE* borrower;
  FILE* lender;
  Borrowed* next;
};
std::mutex borrowed_mutex;
Borrowed* borrowed = nullptr;
constinit std::atomic<int> borrowers{0};

bool borrow_wide_data(FILE& file) {
  auto* one = new (std::nothrow) Borrowed{&file, real.fdopen(file._fileno, "r"), nullptr};
  if (one == nullptr || one->lender == nullptr) {
    delete one;
    return false;
  }
  one->lender->_fileno = -1;  // whose descriptor it is, its end must not say
  file._wide_data = one->lender->_wide_data;
  const std::lock_guard lock(borrowed_mutex);
  one->next = borrowed;
  borrowed = one;
  borrowers.fetch_add(1, std::memory_order_release);
  return true;
}

FILE* take_lender(const FILE* file) {
  const std::lock_guard lock(borrowed_mutex);
  for (Borrowed** at = &borrowed; *at != nullptr; at = &(*at)->next) {
    if ((*at)->borrower != file) continue;
    Borrowed* const one = *at;
    FILE* const lender = one->lender;
    *at = one->next;
    delete one;
    borrowers.fetch_sub(1, std::memory_order_relaxed);
    return lender;
  }
  return nullptr;
}

void make_libcs(FILE& file) {
  if (!borrow_wide_data(file)) return refuse_wide(file);
  file._mode = 0;
}

// Of stdin, stdout and stderr libc's own takes its place again.
FILE* give_back_standard(Standard& one) {
  const bool is_unoriented = is_unused(*one.ours);
  *one.variable = one.original;
  if (!is_unoriented) one.original->_mode = -1;
  return one.original;
}

// Formats by format_into(room, size) -> length, and sends all of it. As libc's dprintf, the length
// or -1.
template <typename FormatInto>
int print(int fd, FormatInto format_into) {
  char small[1024];
  const int length = format_into(small, sizeof(small));
  if (length < 0) return -1;
  const auto size = static_cast<size_t>(length);
  if (size < sizeof(small)) {
    const auto written = write_file(reinterpret_cast<void*>(intptr_t{fd}), small, size);
    return written == length ? length : -1;
  }
  auto* large = static_cast<char*>(malloc(size + 1));
  if (large == nullptr) return -1;
  format_into(large, size + 1);
  const auto written = write_file(reinterpret_cast<void*>(intptr_t{fd}), large, size);
  const base::KeepErrno keep;
  free(large);
  return written == length ? length : -1;
}

}  // namespace

void cover_standard_file(int fd) {
  if (fd < STDIN_FILENO || fd > STDERR_FILENO || !is_ours(fd)) return;
  Standard& one = standard[fd];
  // Not where the program has put a FILE of another number there.
  if (*one.variable == nullptr || *one.variable == one.ours || (*one.variable)->_fileno != fd)
    return;
  const base::KeepErrno keep;
  if ((*one.variable)->_mode > 0)
    leave_ddp_mode(fd, kWhyWide);
  else
    replace(one, fd);
}

FILE* make_fit_for_wide(FILE* file) {
  if (stands_aside()) return file;
  const bool is_first = is_unused(*file);
  const bool is_fit =
      is_first && (!is_ours(file->_fileno) || leave_ddp_mode(file->_fileno, kWhyWide));
  for (Standard& one : standard)
    if (file == one.ours) file = give_back_standard(one);
  if (!is_fit)
    refuse_wide(*file);
  else if (file->_wide_data == nullptr)
    make_libcs(*file);
  if (is_first && !is_fit) errno = EOPNOTSUPP;
  return file;
}

int own_fwide(FILE* file, int mode) {
  if (file->_wide_data != nullptr || stands_aside()) return real.fwide(file, mode);
  if (mode == 0) return is_unused(*file) ? 0 : -1;
  return real.fwide(mode > 0 ? make_fit_for_wide(file) : file, mode);
}

FILE* own_fdopen(int fd, const char* mode) {
  if (is_ours(fd) ? is_plain(fd) : !may_be_chosen_later(fd)) return real.fdopen(fd, mode);
  return open_cookie(reinterpret_cast<void*>(intptr_t{fd}), mode, fd, close_file);
}

int own_fclose(FILE* file) {
  FILE* const lender = borrowers.load(std::memory_order_acquire) != 0 ? take_lender(file) : nullptr;
  const int result = real.fclose(file);
  const base::KeepErrno keep;
  if (lender != nullptr) real.fclose(lender);
  return result;
}

int chosen_vdprintf(int fd, const char* format, va_list arguments) {
  return print(fd, [&](char* room, size_t size) {
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(room, size, format, again);
    va_end(again);
    return length;
  });
}

int chosen_vdprintf_chk(int fd, int flag, const char* format, va_list arguments) {
  return print(fd, [&](char* room, size_t size) {
    va_list again;
    va_copy(again, arguments);
    const int length = __vsnprintf_chk(room, size, flag, size, format, again);
    va_end(again);
    return length;
  });
}

int own_dprintf(int fd, const char* format, va_list rest) {
  return is_ours(fd) ? chosen_vdprintf(fd, format, rest) : real.vdprintf(fd, format, rest);
}

int own_dprintf_chk(int fd, int flag, const char* format, va_list rest) {
  return is_ours(fd) ? chosen_vdprintf_chk(fd, flag, format, rest)
                     : real.vdprintf_chk(fd, flag, format, rest);
}

}  // namespace ddpsock::shim
