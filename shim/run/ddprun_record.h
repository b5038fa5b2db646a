// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// --pcap and --trace: the files are made before the program begins, so that one which cannot be
// written is an error of ddprun's and never one of the program's.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_RECORD_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_RECORD_H_

#include <CLI/CLI.hpp>
#include <string>

namespace ddpsock::shim {

struct Recording {
  std::string capture, trace;  // as the command line names them; empty: none
};

void declare_recording(CLI::App& app, Recording& recording);

// What the library is told (engine/wrap/record_file.h), but for the process.
struct RecordedFile {
  std::string path;  // absolute
  long long since = 0;
};
struct RecordedFiles {
  RecordedFile capture, trace;
};
// Empties the files that are there. Throws Failure.
RecordedFiles make_files(const Recording& recording);

// For the program that this very process executes.
void announce(const RecordedFiles& files);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_RECORD_H_
