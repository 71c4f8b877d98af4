// Bare TCP, as a floor: a connection to every rank of the other machines. Each exchange sends the tensor to all of
// them, reads as many bytes from each, and adds them up. No headers, no checks. With machines of one rank that is a
// whole all-reduce; with larger ones it leaves out the ranks of the own machine.
//   Spin   looks at the socket again and again, giving up the processor between looks
//   Sleep  blocks in recv()
#pragma once

#include <map>

#include "contender.h"
#include "meeting.h"

namespace fairring {

class RawExchange final : public Contender {
 public:
  enum class Wait { Spin, Sleep };
  static constexpr std::size_t kMostBytes = 64 << 10;  // more might wait for each other's readers

  // Called by all ranks at once.
  RawExchange(Meeting& meeting, Wait wait);

  std::string name() const override { return wait_ == Wait::Spin ? "sockets, spinning" : "sockets, sleeping"; }
  void sum(std::span<float> tensor) override;
  std::vector<int> ranks() const override;

 private:
  void receive(const Descriptor& socket, std::span<char> bytes) const;

  const int rank_;
  const Wait wait_;
  std::map<int, Descriptor> peers_;
  std::vector<float> incoming_;
};

}  // namespace fairring
