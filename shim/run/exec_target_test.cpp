// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Files as exec meets them, and what is foretold of them.
#include "shim/run/exec_target.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "shim/run/elf_machine.h"

namespace ddpsock::shim {
namespace {

constexpr unsigned kNobodys = 0xfeed;  // no machine has this number

class ExecTargetTest : public testing::Test {
 protected:
  ExecTargetTest() {
    EXPECT_NE(mkdtemp(folder_), nullptr);
    path_ = std::string(folder_) + "/program";
  }
  ~ExecTargetTest() override {
    unlink(path_.c_str());
    rmdir(folder_);
  }

  ExecOutlook outlook_of(std::string_view content, mode_t mode = 0755) {
    unlink(path_.c_str());
    const base::UniqueFd file(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    EXPECT_EQ(write(file.get(), content.data(), content.size()), ssize_t(content.size()));
    return look_at({AT_FDCWD, path_.c_str()});
  }

  static std::string elf(unsigned char elf_class, unsigned machine, bool is_dynamic) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = elf_class;
    header.e_machine = static_cast<Elf64_Half>(machine);
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr part{};
    part.p_type = is_dynamic ? PT_INTERP : PT_LOAD;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    return bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
  }

  char folder_[32] = "/tmp/exec_target_test.XXXXXX";
  std::string path_;
};

TEST_F(ExecTargetTest, ADynamicProgramIsPreloadedInto) {
  const ExecOutlook outlook = outlook_of(elf(ELFCLASS64, kMachine, true));
  EXPECT_TRUE(outlook.may_be_executed);
  EXPECT_EQ(outlook.why_not_preloaded, nullptr);
}

TEST_F(ExecTargetTest, AStaticOneIsNot) {
  const ExecOutlook outlook = outlook_of(elf(ELFCLASS64, kMachine, false));
  EXPECT_TRUE(outlook.may_be_executed);
  EXPECT_STREQ(outlook.why_not_preloaded, "the program is static");
}

TEST_F(ExecTargetTest, NorIsOneOf32Bits) {
  const ExecOutlook outlook = outlook_of(elf(ELFCLASS32, kMachineOf32Bits, true));
  EXPECT_TRUE(outlook.may_be_executed);
  EXPECT_STREQ(outlook.why_not_preloaded, "the program is of another kind of machine");
}

// An emulator may run it that cannot be seen from here.
TEST_F(ExecTargetTest, NorIsAnotherMachinesWhateverRunsIt) {
  for (const bool is_dynamic : {false, true}) {
    const ExecOutlook outlook = outlook_of(elf(ELFCLASS64, kNobodys, is_dynamic));
    EXPECT_STREQ(outlook.why_not_preloaded, "the program is of another kind of machine");
  }
}

TEST_F(ExecTargetTest, AScriptIsWhatInterpretsIt) {
  EXPECT_EQ(outlook_of("#!/bin/sh\n").why_not_preloaded, nullptr);
  EXPECT_FALSE(outlook_of("#! /nonexistent\n").may_be_executed);
}

TEST_F(ExecTargetTest, WhatNobodyRunsIsNotExecuted) {
  EXPECT_FALSE(outlook_of("a text\n").may_be_executed);
  EXPECT_FALSE(outlook_of(elf(ELFCLASS64, kMachine, true), 0644).may_be_executed);
  EXPECT_FALSE(look_at({AT_FDCWD, folder_}).may_be_executed);
  EXPECT_FALSE(look_at({AT_FDCWD, "/nonexistent"}).may_be_executed);
}

}  // namespace
}  // namespace ddpsock::shim
