// Joins a rank whose channels find each other by contacts: these travel over the first of the seat's sockets to each
// peer, from the lower rank to the higher, and back if there is an answer.
#pragma once

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "transport_channels_mesh.h"

namespace fairring {

struct ContactSockets {
  Loop& loop;
  std::map<int, std::vector<Descriptor>> byPeer;
  ~ContactSockets() {
    for (const auto& [peer, sockets] : byPeer) loop.unwatch(sockets.front().get());
  }
};

inline void writeContact(int fd, const std::string& contact) {
  if (contact.empty()) return;
  EXPECT_EQ(::write(fd, contact.data(), contact.size()), static_cast<ssize_t>(contact.size()));
}

inline Joined joinByContacts(const MakeChannels& make, ChannelSettings settings, Loop& loop, MessageReceiver& receiver,
                             Seat seat) {
  settings.rank = seat.rank;
  for (const auto& [peer, sockets] : seat.sockets) settings.peers.push_back(peer);
  ChannelsByPeer channels = make(loop, settings, receiver);
  const auto sockets = std::make_shared<ContactSockets>(loop, std::move(seat.sockets));
  for (const auto& [peer, ofPeer] : sockets->byPeer) {
    const int fd = ofPeer.front().get();
    writeContact(fd, channels.at(peer)->contact());
    loop.watch(fd, EPOLLIN, [&loop, &channel = *channels.at(peer), fd](std::uint32_t) {
      std::array<char, 1024> contact{};
      const ssize_t size = ::read(fd, contact.data(), contact.size());
      loop.unwatch(fd);
      if (size > 0) writeContact(fd, channel.connect({contact.data(), static_cast<std::size_t>(size)}));
    });
  }
  const auto open = [channels, sockets] {
    return std::ranges::all_of(channels, [](const auto& entry) { return entry.second->isOpen(); });
  };
  return {std::move(channels), open};
}

}  // namespace fairring
