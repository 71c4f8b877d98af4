// The store by which ranks meet, on a map. A kind of store says what happens before each operation.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "group/key_value.h"

namespace fairring::testing {

class MapStore : public KeyValue {
 public:
  using Map = std::map<std::string, std::string>;

  explicit MapStore(Map& map) : map_(map) {}

  bool has(const std::string& key) override {
    const Turn turn = begin();
    return map_.contains(key);
  }
  std::string get(const std::string& key) override {
    const Turn turn = begin();
    return map_.at(key);
  }
  void set(const std::string& key, const std::string& value) override {
    const Turn turn = begin();
    map_[key] = value;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const Turn turn = begin();
    std::string& value = map_[key];
    value = std::to_string((value.empty() ? 0 : std::stoll(value)) + amount);
    return std::stoll(value);
  }
  std::string compareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    const Turn turn = begin();
    std::string& value = map_[key];
    if (value == expected) value = desired;
    return value;
  }

 protected:
  using Turn = std::unique_lock<std::mutex>;  // held until the operation is over; of no mutex where none is needed

  virtual Turn begin() = 0;
  Map& map() { return map_; }

 private:
  Map& map_;
};

}  // namespace fairring::testing
