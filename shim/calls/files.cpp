// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// sendfile to a stream: the file is read into a bounded buffer and sent from there. splice would
// move bytes past the framing: the connection returns to plain TCP first, or the call is refused,
// and programs that use it fall back to read and write.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/kernel_view.h"
#include "shim/calls.h"
#include "shim/calls/leaving.h"
#include "shim/libc_edge.h"
#include "shim/program_memory.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

constexpr size_t kBufferBytes = 256 * 1024;

// Of the process; mapped by the first sendfile to a stream and lent to one call at a time, so that
// a server which sends files does not map and clear one for every call.
constinit std::atomic<void*> spare_buffer{nullptr};

class FileBuffer {
 public:
  FileBuffer() : data_(spare_buffer.exchange(nullptr, std::memory_order_acq_rel)) {
    if (data_ != nullptr) return;
    void* p =
        mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED) data_ = p;
  }
  FileBuffer(const FileBuffer&) = delete;
  FileBuffer& operator=(const FileBuffer&) = delete;
  ~FileBuffer() {
    void* extra =
        data_ == nullptr ? nullptr : spare_buffer.exchange(data_, std::memory_order_acq_rel);
    if (extra != nullptr) munmap(extra, kBufferBytes);
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Does `fd` still name this stream? Not after a close in another thread, or an unseen one.
bool is_still(int fd, const engine::Stream& stream) {
  const SocketUse use(fd);
  return use && use->stream.load(std::memory_order_acquire) == &stream && is_true_entry(use, fd);
}

// Does the file end here, as far as can be known? What is not a regular file is read to find out.
bool is_end(int file, off_t position) {
  struct stat status;
  return base::kernel::fstat(file, status) != 0 || !S_ISREG(status.st_mode) ||
         position >= status.st_size;
}

// Sends the file from `position` on and moves it by what was sent. The number may be given to
// another meanwhile: reading takes its time.
engine::Io send_file(engine::Stream& stream, int fd, int in, off_t& position, size_t count) {
  const FileBuffer buffer;
  if (buffer.data() == nullptr) return engine::Io::fail(ENOMEM);
  size_t sent = 0;
  while (sent < count) {
    const size_t wanted = std::min(count - sent, kBufferBytes);
    const ssize_t got = pread(in, buffer.data(), wanted, position);
    if (got < 0 && sent == 0) return engine::Io::fail(errno);
    if (got <= 0) break;
    if (!is_still(fd, stream)) {
      if (sent == 0) return engine::Io::fail(EBADF);
      break;
    }
    const iovec part{buffer.data(), static_cast<size_t>(got)};
    // A piece that waits for one which never comes would wait long.
    const bool is_more =
        sent + part.iov_len < count && part.iov_len == wanted && !is_end(in, position + got);
    const engine::Io io = stream.send(fd, {&part, 1}, is_more ? MSG_MORE : 0);
    if (!io.is_ok()) {
      if (sent == 0) return io;
      break;
    }
    sent += static_cast<size_t>(io.count);
    position += io.count;
    if (io.count < got) break;
  }
  return engine::Io::ok(static_cast<ssize_t>(sent));
}

bool is_stream(int fd) {
  const SocketUse use(fd);
  return use && (has_live_stream(use.phase()) || use.phase() == Phase::kMessage);
}

}  // namespace

ssize_t chosen_sendfile(int fd, int in, off_t* offset, size_t count) {
  if (offset != nullptr && !is_sound(offset, sizeof *offset))
    return real.sendfile(fd, in, offset, count);
  const auto on_stream = [=](engine::Stream& stream) {
    off_t position = offset != nullptr ? *offset : lseek(in, 0, SEEK_CUR);
    // A pipe or a socket cannot be the source for the kernel either.
    if (position < 0) return engine::Io::fail(real.fcntl(in, F_GETFD) < 0 ? EBADF : EINVAL);
    const engine::Io io = send_file(stream, fd, in, position, std::min(count, engine::kMostAtOnce));
    if (offset != nullptr) {
      *offset = position;
    } else if (io.is_ok() && lseek(in, position, SEEK_SET) < 0) {
      return engine::Io::fail(errno);
    }
    return io;
  };
  const int saved_errno = errno;
  const ssize_t result = serve(fd, 0, Direction::kSend, on_stream,
                               [=] { return real.sendfile(fd, in, offset, count); });
  if (result >= 0) errno = saved_errno;
  return result;
}

ssize_t own_splice(int in, off_t* in_offset, int fd, off_t* out_offset, size_t size,
                   unsigned flags) {
  const auto is_kept = [](int end) {
    return is_ours(end) && is_stream(end) && !leave_ddp_mode(end, "splice");
  };
  if (is_kept(in) || is_kept(fd)) return fail(EINVAL);
  return real.splice(in, in_offset, fd, out_offset, size, flags);
}

}  // namespace ddpsock::shim
