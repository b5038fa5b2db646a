// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who makes the calls: a thread, a forked child or an executed program that waits for an order,
// obeys and answers. The orders lie in the shared mapping, so that it is all one to who gives them.
#ifndef DDPSOCK_TESTS_SEQUENCES_ACTORS_H_
#define DDPSOCK_TESTS_SEQUENCES_ACTORS_H_

namespace ddpsock::sequences {

// The signals that are sent to an actor: with SA_RESTART, without, and one whose handler jumps out
// of the call.
enum class HowToSignal { kRestart, kInterrupt, kJump, kNumber };
int signal_of(HowToSignal how);
int signal_of_io();  // by F_SETSIG; nobody handles it
void handle_signals();

// In the caller's thread, for calls that do not sleep.
void obey_here(int actor);
void* actor_thread(void* actor);  // of pthread_create; the argument is the actor's number
[[noreturn]] void live_after_exec(int actor);

}  // namespace ddpsock::sequences

#endif  // DDPSOCK_TESTS_SEQUENCES_ACTORS_H_
