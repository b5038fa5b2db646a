// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Destructors run when pthread_cancel unwinds a blocked call, and that is all this library needs of
// exceptions: nothing in it throws or catches. C's personality does that from the same tables;
// C++'s own would bring the whole runtime along, which allocates an emergency pool as soon as it is
// loaded.
#include <unwind.h>

extern "C" {

_Unwind_Reason_Code __gcc_personality_v0(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class exception_class,
                                         _Unwind_Exception* exception, _Unwind_Context* context);

_Unwind_Reason_Code __gxx_personality_v0(int version, _Unwind_Action actions,
                                         _Unwind_Exception_Class exception_class,
                                         _Unwind_Exception* exception, _Unwind_Context* context) {
  return __gcc_personality_v0(version, actions, exception_class, exception, context);
}

}  // extern "C"
