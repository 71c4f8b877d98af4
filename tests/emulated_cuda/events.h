// Events: what a stream has come to when one was last recorded. Under the devices' mutex.
//
// Waiting for an event means its record of that moment: a later record does not change what was waited for.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>

#include "device.h"

struct CUevent_st {
  struct Record {
    bool isReached = false;
    std::chrono::steady_clock::time_point at;
  };

  int device;
  std::shared_ptr<Record> record;
  std::weak_ptr<emulated::Capture> capture;  // where it was last recorded in one

  bool isReached() const { return record == nullptr || record->isReached; }
};
