// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What little of the C++ runtime this library needs, so that nothing of the static one is linked
// in: that allocates an emergency pool for exceptions as soon as it is loaded, and nothing here
// throws or catches one.
#include <dlfcn.h>
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

}  // extern "C"

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
