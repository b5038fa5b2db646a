// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Questions that need a descriptor, of a process that has none left.
#ifndef DDPSOCK_SHIM_POLICY_SPARE_DESCRIPTOR_H_
#define DDPSOCK_SHIM_POLICY_SPARE_DESCRIPTOR_H_

namespace ddpsock::shim {

// Runs `ask(context)` in this memory, with a copy of this process's descriptors from which one
// other than `kept` is missing; returns when it has ended. `ask` needs no more than 12 KiB of
// stack, waits for nothing, and leaves nothing open. False: it was not run. Async-signal-safe;
// costs as much as a vfork.
bool with_spare_descriptor(int kept, void (*ask)(void* context), void* context);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_SPARE_DESCRIPTOR_H_
