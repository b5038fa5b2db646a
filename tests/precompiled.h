// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Parsed once for all tests of a folder (its meson.build), and no substitute for own includes.
#ifndef DDPSOCK_TESTS_PRECOMPILED_H_
#define DDPSOCK_TESTS_PRECOMPILED_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#endif
