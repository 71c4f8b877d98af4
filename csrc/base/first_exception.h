// Attempts that are all made, whatever one of them throws; then the first exception is thrown.
#pragma once

#include <exception>

namespace fairring {

class FirstException {
 public:
  void of(const auto& attempt) {
    try {
      attempt();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace fairring
