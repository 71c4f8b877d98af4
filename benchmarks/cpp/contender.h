// The interface of a contender: it sums a small tensor of every rank in place, and returns when this rank has the sum.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fairring {

class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string name() const = 0;
  virtual void sum(std::span<float> tensor) = 0;
  virtual std::vector<int> ranks() const = 0;  // whose tensors are in this rank's sum
};

}  // namespace fairring
