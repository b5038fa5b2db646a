// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The options that only sockets in message mode have.
#include <errno.h>
#include <string.h>

#include <algorithm>

#include "shim/libc_edge.h"
#include "shim/message_socket.h"

namespace ddpsock::shim {
namespace {

constexpr int kMostSpinUs = 1'000'000;

int answer(const Status<>& status) {
  return status ? 0 : fail(to_int(status.error()));
}

int copy_out(const void* from, size_t size, void* value, socklen_t* length) {
  const size_t room = std::min<size_t>(*length, size);
  if (room != 0) memcpy(value, from, room);
  *length = static_cast<socklen_t>(room);
  return 0;
}

bool is_known(int name) {
  return name >= DDP_DEPTHS && name <= DDP_SRQ_LIMIT;
}

Status<> set_queue(message::Connection& c, int queue_fd) {
  const SocketUse use(queue_fd);
  message::Handle* handle = use ? message_handle(use) : nullptr;
  if (handle == nullptr || handle->queue() == nullptr) return fail_errno(EINVAL);
  return c.wishes().set_queue(*handle->queue());
}

Status<> set_srq(message::Connection& c, int srq_fd) {
  const SocketUse use(srq_fd);
  message::Handle* handle = use ? message_handle(use) : nullptr;
  if (handle == nullptr || handle->srq() == nullptr) return fail_errno(EINVAL);
  return c.wishes().set_srq(*handle->srq());
}

Status<> set_int(message::Connection& c, int name, int value) {
  switch (name) {
    case DDP_MARKERS:
      return c.wishes().change([=](message::Settings& s) { s.wants_markers = value != 0; });
    case DDP_PROGRESS:
      if (value != DDP_PROGRESS_THREAD && value != DDP_PROGRESS_CALLER) return fail_errno(EINVAL);
      return c.wishes().change(
          [=](message::Settings& s) { s.is_caller_driven = value == DDP_PROGRESS_CALLER; });
    case DDP_CQ:
      return set_queue(c, value);
    case DDP_SRQ:
      return set_srq(c, value);
    default:
      return fail_errno(EOPNOTSUPP);
  }
}

int set_limit(message::Handle& handle, int level) {
  if (handle.srq() == nullptr) return fail(EOPNOTSUPP);
  if (level < 0) return fail(EINVAL);
  handle.srq()->set_limit(static_cast<unsigned>(level));
  return 0;
}

int set_spin(message::Handle& handle, int us) {
  if (handle.srq() != nullptr) return fail(EOPNOTSUPP);
  if (us < 0 || us > kMostSpinUs) return fail(EINVAL);
  handle.set_spin(Duration::from_us(us));
  return 0;
}

}  // namespace

int set_message_option(int fd, int name, const void* value, socklen_t length) {
  if (!is_known(name)) return fail(ENOPROTOOPT);
  const SocketUse use(fd);
  message::Handle* handle = use ? message_handle(use) : nullptr;
  if (handle == nullptr) return fail(EOPNOTSUPP);
  message::Connection* c = handle->connection();
  if (name == DDP_PRIVATE_DATA && c != nullptr)
    return answer(c->set_private_data({static_cast<const uint8_t*>(value), length}));
  if (name == DDP_DEPTHS && c != nullptr) {
    ddp_depths depths;
    if (length < sizeof(depths)) return fail(EINVAL);
    memcpy(&depths, value, sizeof(depths));
    return answer(c->wishes().set_depths(depths));
  }
  int number = 0;
  if (length < sizeof(number)) return fail(EINVAL);
  memcpy(&number, value, sizeof(number));
  if (name == DDP_SPIN_US) return set_spin(*handle, number);
  if (name == DDP_SRQ_LIMIT) return set_limit(*handle, number);
  return c != nullptr ? answer(set_int(*c, name, number)) : fail(EOPNOTSUPP);
}

int get_message_option(int fd, int name, void* value, socklen_t* length) {
  if (!is_known(name)) return fail(ENOPROTOOPT);
  const SocketUse use(fd);
  message::Handle* handle = use ? message_handle(use) : nullptr;
  if (handle == nullptr) return fail(EOPNOTSUPP);
  int number = 0;
  if (name == DDP_SPIN_US && handle->srq() == nullptr) {
    number = static_cast<int>(handle->spin().ns / 1000);
    return copy_out(&number, sizeof(number), value, length);
  }
  message::Connection* c = handle->connection();
  if (c == nullptr) return fail(EOPNOTSUPP);
  const message::Settings settings = c->wishes().settings();
  switch (name) {
    case DDP_DEPTHS:
      return copy_out(&settings.depths, sizeof(settings.depths), value, length);
    case DDP_PRIVATE_DATA: {
      const auto data = c->peer_private_data();
      if (!data) return fail(to_int(data.error()));
      return copy_out(data->bytes().data(), data->bytes().size(), value, length);
    }
    case DDP_MARKERS:
      number = settings.wants_markers ? 1 : 0;
      break;
    case DDP_PROGRESS:
      number = settings.is_caller_driven ? DDP_PROGRESS_CALLER : DDP_PROGRESS_THREAD;
      break;
    default:
      return fail(ENOPROTOOPT);
  }
  return copy_out(&number, sizeof(number), value, length);
}

}  // namespace ddpsock::shim
