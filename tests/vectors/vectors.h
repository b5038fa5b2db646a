// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reads the golden vectors (form: tests/vectors/README.md). For tests only: whatever is wrong with
// a file ends the program with a message, because a vector that cannot be read must not pass.
#ifndef DDPSOCK_TESTS_VECTORS_VECTORS_H_
#define DDPSOCK_TESTS_VECTORS_VECTORS_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddpsock::vectors {

class Vector {
 public:
  const std::string& name() const { return name_; }
  const std::string& kind() const { return text("kind"); }
  std::vector<uint8_t> bytes() const { return hex("bytes"); }

  bool has(std::string_view key) const { return fields_.contains(key); }
  const std::string& text(std::string_view key) const {
    const auto it = fields_.find(key);
    if (it == fields_.end()) die(key, "is missing");
    return it->second;
  }
  uint64_t number(std::string_view key) const {
    const std::string& value = text(key);
    char* end = nullptr;
    const uint64_t n = std::strtoull(value.c_str(), &end, 0);
    if (value.empty() || *end != '\0') die(key, "is not a number");
    return n;
  }
  bool flag(std::string_view key) const {
    const uint64_t n = number(key);
    if (n > 1) die(key, "is not 0 or 1");
    return n == 1;
  }
  std::vector<uint8_t> hex(std::string_view key) const {
    std::string digits;
    for (char c : text(key))
      if (c != ' ' && c != '\t') digits.push_back(c);
    if (digits.size() % 2 != 0) die(key, "has half a byte");
    std::vector<uint8_t> out;
    for (size_t i = 0; i < digits.size(); i += 2) {
      char* end = nullptr;
      const std::string pair = digits.substr(i, 2);
      out.push_back(static_cast<uint8_t>(std::strtoul(pair.c_str(), &end, 16)));
      if (end != pair.c_str() + 2) die(key, "is not hexadecimal");
    }
    return out;
  }

 private:
  friend class Reader;
  [[noreturn]] void die(std::string_view key, const char* what) const {
    std::fprintf(stderr, "vector '%s': '%.*s' %s\n", name_.c_str(), static_cast<int>(key.size()),
                 key.data(), what);
    std::abort();
  }

  std::string name_;
  std::map<std::string, std::string, std::less<>> fields_;
};

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  std::vector<Vector> read() {
    std::ifstream in(path_);
    if (!in) die("cannot be opened");
    for (std::string line; std::getline(in, line);) {
      ++line_number_;
      take(line);
    }
    end_record();
    if (vectors_.empty()) die("holds no vector");
    return std::move(vectors_);
  }

 private:
  static std::string trim(std::string_view s) {
    const size_t first = s.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return std::string(s.substr(first, s.find_last_not_of(" \t\r") - first + 1));
  }

  void take(const std::string& line) {
    if (line.starts_with('#')) return;
    if (trim(line).empty()) return end_record();
    if (line[0] == ' ' || line[0] == '\t') return continue_value(line);
    const size_t colon = line.find(':');
    if (colon == std::string::npos) die("expected 'key: value'");
    key_ = trim(std::string_view(line).substr(0, colon));
    std::string value = trim(std::string_view(line).substr(colon + 1));
    if (key_ == "name") {
      if (!current_.name_.empty()) die("a record has two names (is an empty line missing?)");
      for (const Vector& v : vectors_)
        if (v.name_ == value) die("this name was used before");
      current_.name_ = std::move(value);
    } else if (current_.name_.empty()) {
      die("a record starts with its name");
    } else if (!current_.fields_.emplace(key_, std::move(value)).second) {
      die("this key was used before in the record");
    }
  }

  void continue_value(const std::string& line) {
    const auto it = current_.fields_.find(key_);
    if (it == current_.fields_.end()) die("a continuation line without a value above it");
    it->second += ' ' + trim(line);
  }

  void end_record() {
    if (!current_.name_.empty()) vectors_.push_back(std::move(current_));
    current_ = {};
    key_.clear();
  }

  [[noreturn]] void die(const char* what) const {
    std::fprintf(stderr, "%s:%d: %s\n", path_.c_str(), line_number_, what);
    std::abort();
  }

  std::string path_;
  int line_number_ = 0;
  std::string key_;
  Vector current_;
  std::vector<Vector> vectors_;
};

#ifdef DDPSOCK_VECTORS_DIR
// All vectors of one file of tests/vectors, in file order.
inline std::vector<Vector> read(std::string_view file) {
  return Reader(std::string(DDPSOCK_VECTORS_DIR "/").append(file)).read();
}

// The one record called `name` in that file.
inline Vector find(std::string_view file, std::string_view name) {
  for (Vector& v : read(file))
    if (v.name() == name) return std::move(v);
  std::fprintf(stderr, "%.*s has no vector '%.*s'\n", static_cast<int>(file.size()), file.data(),
               static_cast<int>(name.size()), name.data());
  std::abort();
}
#endif

}  // namespace ddpsock::vectors

#endif  // DDPSOCK_TESTS_VECTORS_VECTORS_H_
