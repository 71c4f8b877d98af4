#include "backend/device_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"

namespace fairring {
namespace {

struct Watched {
  int descriptor = -1;
  std::uint64_t inode = 0;
};

constexpr int kDecimal = 10;
constexpr int kHexadecimal = 16;

// Lines such as "tfd: 7 events: 19 data: 5581 pos:0 ino:4f2a sdev:8".
std::vector<Watched> watchedBy(int epoll) {
  std::vector<Watched> all;
  std::ifstream info(concat("/proc/self/fdinfo/", epoll));
  for (std::string line; std::getline(info, line);) {
    const std::size_t inode = line.find("ino:");
    if (!line.starts_with("tfd:") || inode == std::string::npos) continue;
    const auto descriptor = static_cast<int>(std::strtol(line.c_str() + 4, nullptr, kDecimal));
    all.push_back({descriptor, std::strtoull(line.c_str() + inode + 4, nullptr, kHexadecimal)});
  }
  return all;
}

void shutIfConnection(const Watched& watched) {
  const Descriptor held(::fcntl(watched.descriptor, F_DUPFD_CLOEXEC, 0));
  struct stat file{};
  if (!held || ::fstat(held.get(), &file) != 0 || file.st_ino != watched.inode) return;
  int listens = 0;
  socklen_t length = sizeof(listens);
  const bool isSocket = ::getsockopt(held.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0;
  if (isSocket && listens == 0) ::shutdown(held.get(), SHUT_RDWR);
}

}  // namespace

std::vector<int> epollDescriptors() {
  std::vector<int> found;
  std::error_code gone;  // descriptors come and go meanwhile
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", gone)) {
    const std::filesystem::path target = std::filesystem::read_symlink(entry.path(), gone);
    if (gone || target != "anon_inode:[eventpoll]") continue;
    found.push_back(static_cast<int>(std::strtol(entry.path().filename().c_str(), nullptr, kDecimal)));
  }
  return found;
}

void shutConnections(int epoll) {
  for (const Watched& watched : watchedBy(epoll)) shutIfConnection(watched);
}

}  // namespace fairring
