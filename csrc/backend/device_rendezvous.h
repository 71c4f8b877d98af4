// How the ranks of a group agree on calls on CUDA tensors, through the group's store and nothing else. They answer each
// other's questions under "device/<question>/<rank>", and rank 0 gathers the answers under "device/<question>/all". The
// ranks of a machine make their level 0 together: they find each other under "device/<the first of them>/<how many
// texts there were before>". Nobody waits there, or for NCCL, once the group has failed.
//
// Callers, one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "device/accelerator.h"
#include "group/rank_facts.h"

namespace fairring {

class Membership;

class DeviceRendezvous {
 public:
  // The membership owns this.
  explicit DeviceRendezvous(Membership& membership) : membership_(membership) {}

  // The answer of each rank, when all have answered. Throws Failure, of kind Usage if it was answered before: the old
  // answers would be taken for the new ones.
  std::vector<std::string> answersOfAll(const std::string& question, const std::string& mine,
                                        std::chrono::milliseconds timeout);
  // The first answer of any rank that is not empty, with the rank that gives it.
  std::string firstReason(const std::string& question, const std::string& mine, std::chrono::milliseconds timeout);
  // What each rank's devices lack, as firstReason() has it; fills in the other facts of the devices. Only now is the
  // driver asked, which a program without calls on a device may not have begun to use.
  std::string askOfDevices(std::vector<RankFacts>& facts, std::chrono::milliseconds timeout);
  std::shared_ptr<Accelerator> make(int device, const std::vector<int>& machineRanks,
                                    std::chrono::milliseconds timeout);
  // The next one that is to be made is this one, which a trial has made.
  void adopt(std::shared_ptr<Accelerator> tried) { tried_ = std::move(tried); }

 private:
  c10::intrusive_ptr<c10d::Store> store(std::chrono::milliseconds timeout) const;

  Membership& membership_;
  std::set<std::string> answered_;
  std::shared_ptr<Accelerator> tried_;
};

}  // namespace fairring
