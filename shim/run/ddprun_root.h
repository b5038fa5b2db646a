// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The files of this system, or of an image of another one: names and links in it never lead out.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_ROOT_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_ROOT_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace ddpsock::shim {

class Root {
 public:
  // "/": this system. Throws Failure if `path` cannot be opened.
  explicit Root(const std::string& path = "/");

  bool is_image() const { return is_image_; }
  // For messages and for people.
  std::string outside(const std::string& path) const;

  // Not valid: errno says why.
  base::UniqueFd open(const std::string& path, int flags) const;
  // Nothing: errno says why.
  std::optional<std::string> read(const std::string& path) const;
  // Without "." and ".."; sorted. Empty if there is no such folder.
  std::vector<std::string> list(const std::string& path) const;
  // Without links, as seen inside. Empty: there is no such file.
  std::string real_path(const std::string& path) const;
  bool exists(const std::string& path) const;

  // Of a name or a number. Nothing: not known there.
  struct User {
    uid_t uid;
    gid_t gid;
  };
  std::optional<User> find_user(const std::string& name) const;

 private:
  std::string path_;  // absolute, without links, no slash at its end
  bool is_image_;
  base::UniqueFd fd_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_ROOT_H_
