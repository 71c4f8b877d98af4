// How long this rank waits for others in NCCL: for so long, and no longer once the group has failed. Any thread.
#pragma once

#include <chrono>
#include <functional>

namespace fairring {

struct NcclPatience {
  std::chrono::milliseconds timeout{};
  std::function<bool()> isOver = nullptr;  // the group has failed; null: there is none that could

  bool hasEnded() const { return isOver && isOver(); }
};

}  // namespace fairring
