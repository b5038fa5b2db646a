// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What ELF programs of this machine say of themselves, and those of 32 bits that it runs too.
#ifndef DDPSOCK_SHIM_RUN_ELF_MACHINE_H_
#define DDPSOCK_SHIM_RUN_ELF_MACHINE_H_

#include <elf.h>

namespace ddpsock::shim {

#if defined(__x86_64__)
inline constexpr unsigned kMachine = EM_X86_64;
inline constexpr unsigned kMachineOf32Bits = EM_386;
#elif defined(__aarch64__)
inline constexpr unsigned kMachine = EM_AARCH64;
inline constexpr unsigned kMachineOf32Bits = EM_ARM;
#elif defined(__riscv)
inline constexpr unsigned kMachine = EM_RISCV;
inline constexpr unsigned kMachineOf32Bits = EM_RISCV;
#elif defined(__powerpc64__)
inline constexpr unsigned kMachine = EM_PPC64;
inline constexpr unsigned kMachineOf32Bits = EM_PPC;
#elif defined(__s390x__)
inline constexpr unsigned kMachine = EM_S390;
inline constexpr unsigned kMachineOf32Bits = EM_S390;
#else
#error "name this machine's ELF number here"
#endif

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_ELF_MACHINE_H_
