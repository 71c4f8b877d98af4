// The ranks of a benchmark, as the variables of torchrun (and of the lab) name them, and how they tell each other
// things between measurements: over a connection of each to rank 0, which hands everything round.
// One thread at a time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace fairring {

class Meeting {
 public:
  // Returns when all ranks are there. Throws Failure where a variable is missing or rank 0 can't be reached in time.
  Meeting();

  int rank() const { return rank_; }
  int world() const { return world_; }
  const std::vector<int>& machines() const { return machines_; }  // by rank
  const std::string& address() const { return address_; }         // by which the other machines reach this rank

  // Gathers each rank's text, by rank.
  std::vector<std::string> tell(const std::string& mine);
  void wait() { tell(""); }  // for all ranks

 private:
  void gather(int port);
  void join(int port);

  int rank_;
  int world_;
  std::string master_;
  std::string address_;
  std::vector<int> machines_;
  std::vector<Descriptor> ranks_;  // at rank 0, by rank; elsewhere rank 0 alone
};

// Blocking connections, TCP without delay. All throw Failure(System) with the call that failed.
Descriptor listenAt(const std::string& address, int port);
Descriptor acceptOne(const Descriptor& listener);
Descriptor connectTo(const std::string& address, int port);  // waits for a listener to be there
void writeAll(const Descriptor& socket, std::span<const char> bytes);
void readAll(const Descriptor& socket, std::span<char> bytes);

}  // namespace fairring
