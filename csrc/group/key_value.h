// The verbs of the job's store by which the ranks of a group meet: torch's store in a job, a map in tests.
// Implementations say which threads may call them; all throw what the store throws.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fairring {

class KeyValue {
 public:
  KeyValue() = default;
  KeyValue(const KeyValue&) = delete;
  KeyValue& operator=(const KeyValue&) = delete;
  virtual ~KeyValue() = default;

  virtual bool has(const std::string& key) = 0;
  virtual std::string get(const std::string& key) = 0;  // of a key that is there
  // The same for several keys; one question, where the store can be asked so.
  virtual bool hasAll(std::span<const std::string> keys) {
    return std::ranges::all_of(keys, [this](const std::string& key) { return has(key); });
  }
  virtual std::vector<std::string> getAll(std::span<const std::string> keys) {
    std::vector<std::string> values;
    for (const std::string& key : keys) values.push_back(get(key));
    return values;
  }
  // May return before it has happened; it has when this connection's next question is answered.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Sets the key if it holds `expected`, or is not there and `expected` is empty; returns what it holds then.
  virtual std::string compareSet(const std::string& key, const std::string& expected, const std::string& desired) = 0;
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;  // returns the sum; begins at 0
};

}  // namespace fairring
