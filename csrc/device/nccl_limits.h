// The limits that a program sets NCCL's communicators (pg_options.config), for those that Fairring makes. Values only.
#pragma once

#include <optional>
#include <string>

namespace fairring {

struct NcclLimits {  // none: NCCL decides
  std::optional<int> clusterSize;
  std::optional<int> leastBlocks;
  std::optional<int> mostBlocks;
  std::optional<int> trafficClass;
  std::string network;  // by its name in NCCL
};

}  // namespace fairring
