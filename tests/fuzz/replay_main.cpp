// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Stands in for libFuzzer in an ordinary build: runs the target once on each file of its corpus, so
// that every input that ever mattered is a unit test under any compiler.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

bool replay(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  const std::vector<char> text{std::istreambuf_iterator<char>(in), {}};
  // An exact-size heap copy, so that valgrind and ASan see a read past the end.
  const std::vector<uint8_t> input(text.begin(), text.end());
  std::printf("%s (%zu bytes)\n", path.filename().c_str(), input.size());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY\n", argv[0]);
    return EXIT_FAILURE;
  }
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1], error))
    if (entry.is_regular_file(error)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    if (!replay(path)) {
      std::fprintf(stderr, "%s cannot be read\n", path.c_str());
      return EXIT_FAILURE;
    }
  }
  if (error || paths.empty()) {
    std::fprintf(stderr, "%s: no corpus to replay\n", argv[1]);
    return EXIT_FAILURE;
  }
  std::printf("%zu inputs replayed\n", paths.size());
  return EXIT_SUCCESS;
}
