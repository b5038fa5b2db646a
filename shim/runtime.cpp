// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What little of the C++ runtime this library needs, so that nothing of the static one is linked
// in: that allocates an emergency pool for exceptions as soon as it is loaded, and nothing here
// throws or catches one.
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unwind.h>

#include <cstdlib>
#include <new>

namespace {

template <typename F>
F* unwinder_function(const char* name) {
  void* unwinder = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
  void* function = unwinder != nullptr ? dlsym(unwinder, name) : nullptr;
  if (function == nullptr) abort();
  return reinterpret_cast<F*>(function);
}

}  // namespace

extern "C" {

// Destructors run when pthread_cancel unwinds a blocked call. The unwinder is then libgcc_s, which
// libc has opened; its contexts mean nothing to a copy linked in here, so both functions are
// borrowed from it. C's personality runs destructors from the same tables as C++'s.
_Unwind_Reason_Code __gxx_personality_v0(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class exception_class,
                                         _Unwind_Exception* exception, _Unwind_Context* context) {
  using Personality = _Unwind_Reason_Code(int, _Unwind_Action, _Unwind_Exception_Class,
                                          _Unwind_Exception*, _Unwind_Context*);
  return unwinder_function<Personality>("__gcc_personality_v0")(version, actions, exception_class,
                                                                exception, context);
}

void _Unwind_Resume(_Unwind_Exception* exception) {
  unwinder_function<void(_Unwind_Exception*)>("_Unwind_Resume")(exception);
  abort();
}

[[noreturn]] void __cxa_pure_virtual() {
  abort();
}

// clang calls these two where an exception would leave a destructor.
[[noreturn]] void* __cxa_begin_catch(void*) noexcept {
  abort();
}

// AddressSanitizer of a program that is linked with its runtime as a library (gcc's) ends the
// program where a preloaded library stands in front of it. This one defines nothing that it
// replaces but calls whose next definition we call, and so takes the place of its weak question for
// defaults: the check is off. What the program's own libraries answer stands behind.
[[gnu::visibility("default")]] const char* __asan_default_options() {
  using Options = const char*();
  static char text[1024] = "verify_asan_link_order=0";
  const auto next = reinterpret_cast<Options*>(dlsym(RTLD_NEXT, "__asan_default_options"));
  const char* more = next != nullptr && next != __asan_default_options ? next() : nullptr;
  // Octet by octet: libc's functions are the runtime's here, which has not begun yet.
  volatile char* to = text;
  while (*to != '\0') ++to;
  if (more != nullptr) *to++ = ':';
  for (; more != nullptr && *more != '\0' && to < text + sizeof text - 1; ++more) *to++ = *more;
  return text;
}

}  // extern "C"

// musl has none of these names, and would not start a program beside which it cannot bind all of
// them. The library does nothing there (real.cpp), but a shell that is under it starts such
// programs too. The library is never unloaded, so what it registers is nobody's.
extern "C" {

int __vsnprintf_chk(char* to, size_t size, int, size_t, const char* format, va_list arguments) {
  return vsnprintf(to, size, format, arguments);
}

int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  using Register = int(void (*)(), void (*)(), void (*)(), void*);
  const auto function = reinterpret_cast<Register*>(dlsym(RTLD_NEXT, "__register_atfork"));
  return function != nullptr ? function(prepare, parent, child, nullptr) : ENOSYS;
}

// libstdc++ asks whether it may count references without atomic instructions. What the library
// itself asks is base/cancellation.h's.
char __libc_single_threaded = 0;

}  // extern "C"

int at_quick_exit(void (*what)()) noexcept {
  using Register = int(void (*)(void*), void*);
  const auto function = reinterpret_cast<Register*>(dlsym(RTLD_NEXT, "__cxa_at_quick_exit"));
  return function != nullptr ? function(reinterpret_cast<void (*)(void*)>(what), nullptr) : -1;
}

// Message mode makes objects, always with std::nothrow; libstdc++'s own of these would throw.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return malloc(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return malloc(size);
}
void operator delete(void* p) noexcept {
  free(p);
}
void operator delete[](void* p) noexcept {
  free(p);
}
void operator delete(void* p, size_t) noexcept {
  free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  free(p);
}
void operator delete[](void* p, size_t) noexcept {
  free(p);
}

// libstdc++'s checks of our own arguments, as in string_view::substr: a bug of ours if they fail.
namespace std {
void terminate() noexcept {
  abort();
}
[[noreturn]] void __throw_out_of_range_fmt(const char*, ...) {
  abort();
}
// A mutex that is locked twice by one thread.
[[noreturn]] void __throw_system_error(int) {
  abort();
}
const nothrow_t nothrow{};
}  // namespace std
