// The stock backends of one group: makes them, breaks their calls off when the group fails, and ends them in bounded
// time.
//
// Making Gloo waits for all ranks, and connects all of them. So that no call does (isend must not, and two ranks may
// use two groups in opposite order) it is made in the background from the group's first moment on, whether this rank
// will need it or not: others may. It is made when all ranks have it; who leaves before waits for that, for
// kPatienceWithRanks at most. Any other is made by the first call that needs it.
//
// Store keys, under the group's prefix: "fairring/<generation>/gloo/...": "made", how many have it, "made/<rank>",
// and "all".
//
// Gloo ends only when its calls have, and offers no way to break them off. So once the group has failed its connections
// are shut (device_sockets.h), again and again, for a call that begins late may make new ones. One that is stuck all
// the same (it waits for a connection that never comes) is left behind after kPatience, to the thread that ends it.
//
// Any thread. get() and end() may wait, without Python's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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
  using Meet = std::function<std::int64_t()>;
  static constexpr std::chrono::seconds kPatience{5};            // with Gloo, at its end
  static constexpr std::chrono::seconds kPatienceWithRanks{10};  // who have not made the group yet

  // lookAround: by who waits in the store for other ranks' part in Gloo.
  StockBackends(StorePtr store, Make make, AbortableStore::LookAround lookAround);

  // Begins to make Gloo. `meet` waits for the ranks and returns the generation; `giveUp` has it end soon, by a throw.
  // Where it throws, get() begins anew.
  void beginGloo(Meet meet, std::function<void()> giveUp);
  // Until Gloo is made, or can't be, or for that long.
  void awaitGloo(std::chrono::milliseconds limit);
  // `prepare` is called once, with the backend that was made.
  BackendPtr get(c10::DeviceType device, const Meet& meet, const std::function<void(c10d::Backend&)>& prepare);
  std::vector<BackendPtr> made() const;
  bool hasEnded() const;
  void breakOff();  // the group has failed: ends the calls under way, and those to come
  void end();       // waits for the calls under way, while the group lives

 private:
  struct Made {
    BackendPtr backend;
    c10::intrusive_ptr<c10d::Backend::Options> devices;  // Gloo's own, kept so that its descriptors stay its own
    std::vector<int> epolls;
    bool prepared = false;
  };
  // A thread that is joined where its work is known to be over, so that a group leaves none, and else left behind.
  class Errand {
   public:
    Errand() = default;
    explicit Errand(std::function<void()> work) : thread_(std::move(work)) {}
    Errand(Errand&&) = default;
    Errand& operator=(Errand&&) = default;
    ~Errand() {
      if (thread_.joinable()) thread_.detach();
    }
    void join() {
      if (thread_.joinable()) thread_.join();
    }

   private:
    std::thread thread_;
  };

  BackendPtr make(c10::DeviceType device, const Meet& meet);
  void makeInBackground(const Meet& meet);
  void awaitOthers(const c10d::Backend& gloo, std::int64_t generation);
  bool isBeginning() const;
  void awaitBeginning();
  void endBeginning();
  void endGloo(Made made);

  const std::shared_ptr<Alarm> broken_ = std::make_shared<Alarm>();
  const AbortableStore::LookAround lookAround_;

  std::mutex making_;         // held while one is made; never taken by breakOff()
  mutable std::mutex mutex_;  // guards all below; never held while anything waits
  std::condition_variable changed_;
  std::shared_ptr<const Make> make_;  // null once ended: it holds a Python object, which must not outlive Python
  StorePtr store_;                    // null once ended: torch may keep the group longer than its store
  std::map<c10::DeviceType, Made> made_;
  bool beginning_ = false;  // Gloo is being made in the background
  Errand beginner_;
  std::function<void()> giveUp_;
  std::exception_ptr notMade_;  // why Gloo could not be made, though the ranks have met
};

}  // namespace fairring
