// The job's store for stock NCCL, with waits that end when the group fails: NCCL waits there for rank 0's part, up to
// its timeout, and can't be interrupted. So a wait polls, at growing intervals, as it does where ranks meet
// (group/rendezvous.h): short waits of the store's own would each end in a warning of c10d's.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace fairring {

class AbortableStore : public c10d::Store {
 public:
  using Keys = std::vector<std::string>;
  using Value = std::vector<std::uint8_t>;

  // On that store's connection. A stop ends its waits, and those of its copies: the group has failed.
  AbortableStore(c10::intrusive_ptr<c10d::Store> store, std::stop_token failure);

  c10::intrusive_ptr<c10d::Store> clone() override;  // on a connection of its own
  void set(const std::string& key, const Value& value) override { store_->set(key, value); }
  Value compareSet(const std::string& key, const Value& expected, const Value& desired) override;
  Value get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const Keys& keys) override { return store_->check(keys); }
  std::int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const Keys& keys) override { wait(keys, getTimeout()); }
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const Value& value) override { store_->append(key, value); }
  std::vector<Value> multiGet(const Keys& keys) override;
  void multiSet(const Keys& keys, const std::vector<Value>& values) override { store_->multiSet(keys, values); }
  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::stop_token failure_;
};

}  // namespace fairring
