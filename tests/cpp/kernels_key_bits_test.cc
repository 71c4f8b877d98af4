#include "kernels/key_bits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace fairring {
namespace {

using Keys = std::vector<std::uint64_t>;

KeyBits bitsOf(const Keys& keys, std::uint64_t keysBelow) {
  KeyBits bits(wordsFor(keysBelow));
  setKeys(bits, keys);
  return bits;
}

TEST(KeyBits, AreTheKeys) {
  const Keys keys{0, 1, 63, 64, 129};
  const KeyBits bits = bitsOf(keys, 130);
  EXPECT_EQ(bits, (KeyBits{1ULL << 63 | 3, 1, 2}));
  EXPECT_EQ(keysIn(bits), keys);
  EXPECT_TRUE(keysIn({}).empty());
}

TEST(KeyBits, OfTwoAreThoseOfEither) {
  KeyBits both = bitsOf({1, 64}, 128);
  uniteKeys(both, bitsOf({1, 127}, 128));
  EXPECT_EQ(keysIn(both), (Keys{1, 64, 127}));
}

TEST(KeyBits, StandWhereTheyAreAmongAll) {
  std::mt19937_64 random(1);
  for (const std::uint64_t keysBelow : {0, 1, 64, 65, 200, 1000}) {
    for (const unsigned lackOneIn : {1, 2, 10, 100}) {
      Keys some;
      Keys all;
      Keys places;
      for (std::uint64_t key = 0; key < keysBelow; ++key) {
        if (random() % lackOneIn == 0 && lackOneIn > 1) continue;
        if (random() % 2 == 0) {
          some.push_back(key);
          places.push_back(all.size());
        }
        all.push_back(key);
      }
      KeyBits found(wordsFor(all.size()));
      addPlaces(found, bitsOf(some, keysBelow), bitsOf(all, keysBelow));
      EXPECT_EQ(keysIn(found), places) << some.size() << " of " << all.size();
    }
  }
}

TEST(KeyBits, AreExtractedAlikeByEveryProcessor) {
  std::mt19937_64 random(2);
  EXPECT_EQ(extractAnywhere(0b1010'0110, 0b1111'0000), 0b1010U);
  for (const std::uint64_t mask : {0ULL, 1ULL, 1ULL << 63, ~0ULL, 0xf0f0'0000'0000'000fULL}) {
    const std::uint64_t word = random();
    EXPECT_EQ(extract(word, mask), extractAnywhere(word, mask));
  }
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t word = random();
    const std::uint64_t mask = random();
    EXPECT_EQ(extract(word, mask), extractAnywhere(word, mask));
  }
}

}  // namespace
}  // namespace fairring
