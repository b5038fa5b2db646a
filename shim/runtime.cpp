// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What little of the C++ runtime this library needs, so that nothing of the static one is linked
// in: that allocates an emergency pool for exceptions as soon as it is loaded, and nothing here
// throws or catches one.
#include <unwind.h>

#include <cstdlib>

extern "C" {

// Destructors run when pthread_cancel unwinds a blocked call. C's personality runs them from the
// same tables as C++'s.
_Unwind_Reason_Code __gcc_personality_v0(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class exception_class,
                                         _Unwind_Exception* exception, _Unwind_Context* context);

_Unwind_Reason_Code __gxx_personality_v0(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class exception_class,
                                         _Unwind_Exception* exception, _Unwind_Context* context) {
  return __gcc_personality_v0(version, actions, exception_class, exception, context);
}

[[noreturn]] void __cxa_pure_virtual() {
  abort();
}

}  // extern "C"

// libstdc++'s checks of our own arguments, as in string_view::substr: a bug of ours if they fail.
namespace std {
[[noreturn]] void __throw_out_of_range_fmt(const char*, ...) {
  abort();
}
}  // namespace std
