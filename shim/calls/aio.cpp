// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// POSIX asynchronous I/O. libc's threads make its system calls past any preload, so a connection
// that a program uses so returns to plain TCP first. One that cannot, or not now, is refused as
// where libc has no room for the request.
#include <aio.h>
#include <errno.h>

#include "shim/calls.h"
#include "shim/calls/leaving.h"
#include "shim/fd_table.h"
#include "shim/libc_edge.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr char kWhy[] = "asynchronous I/O (aio)";

}  // namespace

int own_aio_read(aiocb* request) {
  if (is_any_ours() && request != nullptr && !leave_ddp_mode(request->aio_fildes, kWhy))
    return fail(EAGAIN);
  return real.aio_read(request);
}

int own_aio_write(aiocb* request) {
  if (is_any_ours() && request != nullptr && !leave_ddp_mode(request->aio_fildes, kWhy))
    return fail(EAGAIN);
  return real.aio_write(request);
}

int own_lio_listio(int mode, aiocb* const* requests, int count, sigevent* event) {
  const auto each = [=](auto visit) {
    for (int i = 0; i < count; ++i)
      if (requests[i] != nullptr && requests[i]->aio_lio_opcode != LIO_NOP)
        visit(requests[i]->aio_fildes);
  };
  if (is_any_ours() && requests != nullptr && !leave_ddp_mode_each(each, kWhy)) return fail(EAGAIN);
  return real.lio_listio(mode, requests, count, event);
}

}  // namespace ddpsock::shim
