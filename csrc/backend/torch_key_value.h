// Torch's store, by which the ranks of a group meet. Threads: as the store's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "group/key_value.h"

namespace fairring {

class TorchKeyValue final : public KeyValue {
 public:
  explicit TorchKeyValue(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  bool has(const std::string& key) override { return store_->check({key}); }
  std::string get(const std::string& key) override { return store_->get_to_str(key); }
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(key, amount); }

  bool hasAll(std::span<const std::string> keys) override { return store_->check({keys.begin(), keys.end()}); }

  std::vector<std::string> getAll(std::span<const std::string> keys) override {
    if (!store_->hasExtendedApi()) return KeyValue::getAll(keys);
    std::vector<std::string> texts;
    for (const auto& value : store_->multiGet({keys.begin(), keys.end()}))
      texts.emplace_back(value.begin(), value.end());
    return texts;
  }

  std::string compareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    const std::vector<std::uint8_t> now = store_->compareSet(key, bytesOf(expected), bytesOf(desired));
    return {now.begin(), now.end()};
  }

 private:
  static std::vector<std::uint8_t> bytesOf(const std::string& text) { return {text.begin(), text.end()}; }

  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace fairring
