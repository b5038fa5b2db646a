// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The functions of ddpsock.h.
#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#pragma GCC visibility push(default)
#include "base/fd.h"
#include "ddpsock/ddpsock.h"
#pragma GCC visibility pop

#include "message/work.h"
#include "shim/brief_use.h"
#include "shim/libc_edge.h"
#include "shim/message_socket.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

int answer(const Status<>& status) {
  return status ? 0 : fail(to_int(status.error()));
}
template <typename T>
int answer(const Result<T>& result) {
  return result ? static_cast<int>(*result) : fail(to_int(result.error()));
}

int answer(const Result<ddp_region>& made, ddp_region& to) {
  if (!made) return fail(to_int(made.error()));
  to = *made;
  return 0;
}

// call(Handle&) on what `fd` is.
template <typename Call>
int on_handle(int fd, Call call) {
  SocketUse use(fd);
  if (!use) return fail(real.fcntl(fd, F_GETFD) < 0 ? EBADF : EOPNOTSUPP);
  if (message::Handle* handle = message_handle(use); handle != nullptr) return call(*handle);
  const auto beside_stream = operations_of_stream(use, fd);
  return beside_stream ? call(**beside_stream) : fail(to_int(beside_stream.error()));
}

template <typename Call>
int on_connection(int fd, Call call) {
  return on_handle(fd, [&](message::Handle& handle) {
    message::Connection* c = handle.connection();
    return c != nullptr ? call(*c) : fail(EOPNOTSUPP);
  });
}

int answer(const message::Accepted& done) {
  if (done.why != 0) errno = done.why;
  return done.count == 0 && done.why != 0 ? -1 : static_cast<int>(done.count);
}

// What is done at once of a call on `fd`, by direct(Connection&), whose answer is `nothing` if that
// is all; by a BriefUse where there is one. `by`: on which connection; to be compared with others
// alone. (Both in one object would go through memory, in parts.)
template <typename Answer, typename Direct>
[[gnu::always_inline]] inline Answer do_directly(int fd, Answer nothing,
                                                 const message::Connection*& by, Direct direct) {
  bool is_brief = false, owes_work = false;
  Answer answer = nothing;
  {
    const BriefUse use(fd);
    is_brief = static_cast<bool>(use);
    if (message::Connection* c = is_brief ? use->connection() : nullptr; c != nullptr) {
      by = c;
      answer = direct(*c);
      owes_work = c->owes_work();
    }
  }
  if (is_brief && !owes_work) [[likely]]
    return answer;
  const Socket* socket = socket_at(fd);
  if (socket == nullptr || socket->phase.load(std::memory_order_acquire) != Phase::kMessage)
    return answer;
  const SocketUse use(fd);
  if (!use || use.phase() != Phase::kMessage) return answer;
  message::Handle* handle = message_handle(use);
  message::Connection* c = handle != nullptr ? handle->connection() : nullptr;
  if (c == nullptr) return answer;
  if (by == nullptr) {
    by = c;
    answer = direct(*c);
  }
  c->catch_up();
  return answer;
}

// What is left is posted by post(handle, std::span<const Work>), which answers as the call does.
template <typename Work, typename Post>
int post_as_usual(int fd, const Work* work, unsigned count, Post post) {
  if (work == nullptr && count != 0) return fail(EFAULT);
  const message::Connection* by = nullptr;
  const unsigned direct = do_directly(
      fd, 0u, by, [=](message::Connection& c) { return c.post_directly(std::span(work, count)); });
  if (direct == count && count != 0) return static_cast<int>(count);
  const int more = on_handle(fd, [=](message::Handle& handle) {
    // The number may have been given to another meanwhile, who is to have nothing of this.
    if (direct != 0 && handle.connection() != by) return fail(EBADF);
    return post(handle, std::span(work, count).subspan(direct));
  });
  return direct == 0 ? more : static_cast<int>(direct) + std::max(more, 0);
}

template <typename Work>
int post(int fd, const Work* work, unsigned count) {
  return post_as_usual(fd, work, count, [](message::Handle& handle, std::span<const Work> rest) {
    message::Connection* c = handle.connection();
    return c != nullptr ? answer(c->post(rest)) : fail(EOPNOTSUPP);
  });
}

// A descriptor of the library's own as the program's name of `handle`.
int enter(message::Handle& handle, int fd) {
  Socket* socket = fd >= 0 ? enter_fd(fd) : nullptr;
  if (socket == nullptr) {
    if (fd >= 0) base::close_own(fd);
    handle.destroy();
    return fail(fd >= 0 ? ENOMEM : EMFILE);
  }
  socket->message.store(&handle, std::memory_order_release);
  socket->phase.store(Phase::kMessage, std::memory_order_release);
  return fd;
}

}  // namespace
}  // namespace ddpsock::shim

using ddpsock::shim::answer;
using ddpsock::shim::do_directly;
using ddpsock::shim::enter;
using ddpsock::shim::fail;
using ddpsock::shim::on_connection;
using ddpsock::shim::on_handle;
using ddpsock::shim::post;
using ddpsock::shim::post_as_usual;
namespace message = ddpsock::message;

int ddp_reg(int fd, void* address, size_t length, unsigned rights, ddp_region* region) {
  if (region == nullptr) return fail(EFAULT);
  return on_handle(fd, [&](message::Handle& handle) {
    const ddpsock::MutBytes memory(static_cast<uint8_t*>(address), address != nullptr ? length : 0);
    return answer(handle.register_memory(memory, rights), *region);
  });
}

int ddp_dereg(int fd, uint32_t stag) {
  return on_handle(fd, [=](message::Handle& handle) { return answer(handle.deregister(stag)); });
}

int ddp_alloc(int fd, size_t length, unsigned rights, ddp_region* region) {
  if (region == nullptr) return fail(EFAULT);
  return on_handle(fd, [&](message::Handle& handle) {
    return answer(handle.allocate(length, rights), *region);
  });
}
int ddp_free(int fd, uint32_t stag) {
  return on_handle(fd, [=](message::Handle& handle) { return answer(handle.free(stag)); });
}
int ddp_take_back(int fd, uint32_t stag) {
  return on_handle(fd, [=](message::Handle& handle) { return answer(handle.take_back(stag)); });
}

int ddp_post_send(int fd, const ddp_send_work* work, unsigned count) {
  return post(fd, work, count);
}
int ddp_post_recv(int fd, const ddp_recv_work* work, unsigned count) {
  return post_as_usual(fd, work, count,
                       [](message::Handle& handle, std::span<const ddp_recv_work> rest) {
                         if (message::Srq* srq = handle.srq()) return answer(srq->post(rest));
                         message::Connection* c = handle.connection();
                         return c != nullptr ? answer(c->post(rest)) : fail(EOPNOTSUPP);
                       });
}
int ddp_post_write(int fd, const ddp_write_work* work, unsigned count) {
  return post(fd, work, count);
}
int ddp_post_read(int fd, const ddp_read_work* work, unsigned count) {
  return post(fd, work, count);
}
int ddp_post_atomic(int fd, const ddp_atomic_work* work, unsigned count) {
  return post(fd, work, count);
}

int ddp_poll(int fd, ddp_completion* completions, unsigned room) {
  if (completions == nullptr && room != 0) return fail(EFAULT);
  const message::Connection* by = nullptr;
  const int found = do_directly(fd, message::kAskAsUsual, by, [=](message::Connection& c) {
    return c.poll_directly({completions, room});
  });
  if (found != message::kAskAsUsual) return found;
  return on_handle(
      fd, [=](message::Handle& handle) { return answer(handle.poll({completions, room})); });
}

int ddp_wait(int fd, ddp_completion* completions, unsigned room, int timeout_ms) {
  if (completions == nullptr && room != 0) return fail(EFAULT);
  return on_handle(fd, [=](message::Handle& handle) {
    return answer(handle.wait({completions, room}, timeout_ms));
  });
}

int ddp_establish(int fd, int timeout_ms) {
  return on_connection(fd, [=](message::Connection& c) { return answer(c.establish(timeout_ms)); });
}

int ddp_event_fd(int fd) {
  return on_handle(fd, [](message::Handle& handle) { return answer(handle.event_fd()); });
}

int ddp_open_cq(unsigned depth) {
  const auto queue = message::Queue::make(depth);
  if (!queue) return fail(to_int(queue.error()));
  return enter(**queue, (*queue)->open_descriptor());
}

int ddp_open_srq(int cq, unsigned depth) {
  return on_handle(cq, [=](message::Handle& handle) {
    if (handle.queue() == nullptr) return fail(EINVAL);
    const auto srq = message::Srq::make(*handle.queue(), depth);
    if (!srq) return fail(to_int(srq.error()));
    return enter(**srq, (*srq)->open_descriptor());
  });
}

const char* ddp_strerror(const ddp_completion* completion) {
  return completion != nullptr ? message::describe(*completion) : "no completion";
}
