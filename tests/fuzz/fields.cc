// Fuzzes the texts of fields that a peer, or any writer to the job's store, may give. Any bytes are either refused or
// are the one text of the value that is read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"

using namespace fairring;

namespace {

struct Entry {
  std::uint64_t number = 0;
  std::string text;

  static void fields(auto& row, auto& entry) { row(entry.number, entry.text); }
};

struct Value {  // with a field of every kind
  bool flag = false;
  std::int32_t number = 0;
  std::vector<std::string> texts;
  std::vector<Entry> entries;

  static void fields(auto& row, auto& value) {
    row("v", value.flag, value.number, value.texts, value.entries);
    row.require(value.number >= 0);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = fromText<Value>(text);
  if (value && toText(*value) != text) std::abort();
  return 0;
}
