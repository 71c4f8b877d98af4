// Directories in the form of the system's own that describe RDMA devices.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "transport/rdma_devices.h"

namespace fairring {

namespace fs = std::filesystem;

constexpr const char* kGid = "fe80:0000:0000:0000:5054:00ff:fe77:0001";

// A machine whose devices a test adds and breaks.
class RdmaDirectories : public ::testing::Test {
 protected:
  RdmaDirectories() {
    std::string name = (fs::temp_directory_path() / "fairring-rdma-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    sources_ = {root_ / "class", root_ / "dev", root_ / "if_inet6"};
    write("if_inet6", "fe80000000000000505400fffe770001 02 40 20 80     lo\n");
  }
  ~RdmaDirectories() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  // A RoCE port that works; `port` and `device` write its files anew.
  void add(const std::string& name, int node, const std::string& driver = "mlx5_core", int number = 1) {
    const std::string uverbs = "uverbs" + std::to_string(node);
    device(name, "node_type", "1: CA\n");
    port(name, "state", "4: ACTIVE\n", number);
    port(name, "phys_state", "5: LinkUp\n", number);
    port(name, "link_layer", "Ethernet\n", number);
    port(name, "rate", "100 Gb/sec (4X EDR)\n", number);
    port(name, "gids/0", std::string(kGid) + "\n", number);
    port(name, "gid_attrs/types/0", "RoCE v2\n", number);
    port(name, "gid_attrs/ndevs/0", "lo\n", number);
    fs::create_directories(root_ / "drivers" / driver);
    fs::create_directories(root_ / "class/infiniband" / name / "device");
    std::error_code isThere;
    fs::create_symlink(root_ / "drivers" / driver, root_ / "class/infiniband" / name / "device/driver", isThere);
    write("class/infiniband_verbs/" + uverbs + "/ibdev", name + "\n");
    write("dev/" + uverbs, "");
  }
  void device(const std::string& name, const std::string& file, const std::string& text) const {
    write("class/infiniband/" + name + "/" + file, text);
  }
  void port(const std::string& name, const std::string& file, const std::string& text, int number = 1) const {
    device(name, "ports/" + std::to_string(number) + "/" + file, text);
  }

  fs::path root_;
  RdmaSources sources_;
};

inline void expectSays(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

}  // namespace fairring
