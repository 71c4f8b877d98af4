// The stock backends of one group: makes them when they are needed, breaks their calls off when the group fails, and
// ends them in bounded time.
//
// Gloo ends only when its calls have, and offers no way to break them off. So once the group has failed its connections
// are shut (device_sockets.h), again and again, for a call that begins late may make new ones. One that is stuck all
// the same (it waits for a connection that never comes) is left behind after kPatience, to the thread that ends it.
//
// Any thread. get() and end() may wait, without Python's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "backend/abortable_store.h"

namespace fairring {

class StockBackends : public std::enable_shared_from_this<StockBackends> {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  // Makes the stock backend of a device type, "cpu" or "cuda", in the generation of the group in which its ranks have
  // met, on that store. With it come the epoll descriptors of its devices. Takes Python's lock itself.
  using Make = std::function<std::pair<BackendPtr, std::vector<int>>(const std::string& device, std::int64_t generation,
                                                                     StorePtr store)>;
  static constexpr std::chrono::seconds kPatience{5};

  StockBackends(StorePtr store, Make make);

  // `meet` returns the generation; `prepare` is called once, with the backend that was made.
  BackendPtr get(c10::DeviceType device, const std::function<std::int64_t()>& meet,
                 const std::function<void(c10d::Backend&)>& prepare);
  std::vector<BackendPtr> made() const;
  bool hasEnded() const;
  void breakOff();  // the group has failed: ends the calls under way, and those to come
  void end();       // waits for the calls under way, while the group lives

 private:
  struct Made {
    BackendPtr backend;
    c10::intrusive_ptr<c10d::Backend::Options> devices;  // Gloo's own, kept so that its descriptors stay its own
    std::vector<int> epolls;
  };

  void endGloo(Made made);

  const std::shared_ptr<Alarm> broken_ = std::make_shared<Alarm>();

  std::mutex making_;         // held while one is made; never taken by breakOff()
  mutable std::mutex mutex_;  // guards all below; never held while anything waits
  std::condition_variable changed_;
  std::shared_ptr<const Make> make_;  // null once ended: it holds a Python object, which must not outlive Python
  StorePtr store_;                    // null once ended: torch may keep the group longer than its store
  std::map<c10::DeviceType, Made> made_;
};

}  // namespace fairring
