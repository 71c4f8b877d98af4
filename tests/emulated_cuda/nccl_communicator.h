// An emulated communicator of NCCL: its calls are work of the emulated streams and run in the order of their issue.
//
// Threads: the program's make calls; a non-blocking communicator does what it was asked for on a thread of its own,
// and its state says ncclInProgress meanwhile; queues' threads run the calls. Held by all of them, so that an abort
// frees nothing that somebody still uses. NCCL frees one that blocks under the threads that are in a call with it, so
// a library that lets it do so is told, and the process ends.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nccl_shared.h"

namespace emulated {

enum class Kind { AllReduce = 1, ReduceScatter, AllGather, Broadcast, Reduce, AllToAll, Gather, Send, Receive, Split };

struct Call {
  Kind kind;
  const void* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
  int operation;
  int peer;  // or the root
  cudaStream_t stream;
  double factor = 1;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // isSlow: its calls take as long as the settings say.
  Communicator(std::string name, int rank, int ranks, int device, bool isBlocking, bool isSlow);

  ncclResult_t join();                          // ends, or, where it is non-blocking, begins it
  ncclResult_t issue(std::vector<Call> calls);  // of one group
  ncclResult_t split(int color, int key, bool isBlocking,
                     const std::function<void(std::shared_ptr<Communicator>)>& made);
  ncclResult_t finalize();
  void abort();
  bool isBlocking() const { return isBlocking_; }
  bool isInCall() const { return isBlocking_ && tasks_ > 0; }  // a thread of the program
  void release();  // waits for what is under way and for graphs that hold its calls, and frees its memory

  ncclResult_t state() const { return state_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  int addFactor(double factor);
  double factorOf(int operation) const;

 private:
  ncclResult_t perform(std::function<bool()> task);
  bool attach();
  bool enqueue(const std::vector<Call>& calls);
  bool connect(const std::vector<Call>& calls);
  std::shared_ptr<void> hold();
  void runInTurn(std::uint64_t number, const std::vector<Call>& calls);
  void run(const std::vector<Call>& calls);
  void collective(const Call& call);
  bool agree(const CallFacts& facts);
  void takePart(const Call& call, std::size_t from, std::size_t bytes, std::size_t share);
  void pointToPoint(const std::vector<Call>& calls);
  bool moveLetter(const Call& call, std::size_t& done);
  std::shared_ptr<Communicator> splitNow(int number, int color, int key, bool isBlocking);
  bool isAborted() const { return aborted_; }

  const std::string name_;
  const int rank_;
  const int ranks_;
  const int device_;
  const bool isBlocking_;
  const bool isSlow_;
  std::unique_ptr<SharedState> shared_;
  std::atomic<ncclResult_t> state_{ncclSuccess};
  std::atomic<bool> aborted_{false};

  std::mutex issuing_;  // from a number's taking to its place in the stream
  std::mutex mutex_;    // what follows
  std::condition_variable changed_;
  std::uint64_t issued_ = 0;
  std::uint64_t ended_ = 0;
  std::atomic<int> tasks_ = 0;
  int holds_ = 0;  // of graphs, one for each group of calls that they have captured
  int splits_ = 0;
  std::set<std::pair<Kind, bool>> connected_;  // and whether the call is large
  std::vector<double> factors_;
  void* buffer_ = nullptr;
};

}  // namespace emulated
