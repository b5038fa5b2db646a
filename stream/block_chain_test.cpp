// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/block_chain.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "relatives/arena.h"

namespace ddpsock::engine {
namespace {

class BlockChains : public ::testing::Test {
 protected:
  void TearDown() override {
    chain_.clear(blocks_);
    EXPECT_EQ(chain_.first_block(), Blocks::kNoBlock);
  }

  Blocks& blocks_ = Arena::get()->blocks;
  BlockChain chain_;
};

std::vector<uint8_t> bytes_from(uint32_t seed, size_t n) {
  std::vector<uint8_t> bytes(n);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(seed += 0x9e3779b9, seed >> 24);
  return bytes;
}

std::vector<uint8_t> read_all(Blocks& blocks, const BlockChain& chain, size_t most) {
  std::vector<uint8_t> all;
  while (all.size() < chain.size()) {
    const Bytes part = chain.at(blocks, all.size(), most);
    EXPECT_TRUE(!part.empty() && part.size() <= most);
    if (part.empty()) break;
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_F(BlockChains, GiveWhatWasAppendedInOrder) {
  std::mt19937 random(7);
  std::deque<uint8_t> model;
  for (uint32_t round = 0; round < 400; ++round) {
    const size_t size = random() % (3 * Blocks::kBlockSize / 2);
    const auto bytes = bytes_from(round, random() % 4 == 0 ? size : size % 900);
    if (random() % 5 == 0) {
      BlockChain other;
      ASSERT_TRUE(other.append(blocks_, bytes));
      chain_.splice(blocks_, other);
      EXPECT_TRUE(other.is_empty());
      EXPECT_EQ(other.first_block(), Blocks::kNoBlock);
    } else {
      ASSERT_TRUE(chain_.append(blocks_, bytes));
    }
    model.insert(model.end(), bytes.begin(), bytes.end());
    const size_t taken = model.empty() ? 0 : random() % (model.size() + 1);
    chain_.take(blocks_, taken);
    model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(taken));
    ASSERT_EQ(chain_.size(), model.size());
    ASSERT_EQ(read_all(blocks_, chain_, 1 + random() % Blocks::kBlockSize),
              std::vector<uint8_t>(model.begin(), model.end()));
    if (random() % 8 == 0) {
      chain_.clear(blocks_);
      model.clear();
      EXPECT_EQ(chain_.first_block(), Blocks::kNoBlock);
    }
    EXPECT_TRUE(chain_.is_mapped(blocks_));
  }
}

TEST_F(BlockChains, KeepOneBlockForWhatComesNext) {
  ASSERT_TRUE(chain_.append(blocks_, bytes_from(1, 2 * Blocks::kBlockSize)));
  chain_.take(blocks_, chain_.size());
  const uint32_t kept = chain_.first_block();
  EXPECT_NE(kept, Blocks::kNoBlock);
  ASSERT_TRUE(chain_.append(blocks_, bytes_from(2, 100)));
  EXPECT_EQ(chain_.first_block(), kept);
  EXPECT_EQ(read_all(blocks_, chain_, 64), bytes_from(2, 100));
}

// Half a chunk is none.
TEST_F(BlockChains, TakeAllBytesOrNone) {
  ASSERT_TRUE(chain_.append(blocks_, bytes_from(1, 1000)));
  std::vector<uint32_t> all;
  for (uint32_t b; (b = blocks_.allocate()) != Blocks::kNoBlock;) all.push_back(b);
  blocks_.free(all.back());
  all.pop_back();
  EXPECT_FALSE(chain_.append(blocks_, bytes_from(2, 3 * Blocks::kBlockSize)));
  EXPECT_EQ(read_all(blocks_, chain_, 4096), bytes_from(1, 1000));
  EXPECT_TRUE(chain_.append(blocks_, bytes_from(3, Blocks::kBlockSize)));
  for (const uint32_t b : all) blocks_.free(b);
  EXPECT_EQ(chain_.size(), 1000 + Blocks::kBlockSize);
}

}  // namespace
}  // namespace ddpsock::engine
