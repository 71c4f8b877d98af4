// Messages of whole groups over real sockets of this machine.
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>

#include "group_job.h"

namespace fairring {
namespace {

using testing::Job;

struct Ended {
  Error error;
  int from = -1;
};

std::future<Ended> send(Job& job, std::size_t rank, int to, const std::vector<char>& bytes, std::uint32_t tag = 0) {
  auto done = std::make_shared<std::promise<Ended>>();
  job.nodes[rank]->group->send(
      {to, {0, tag}, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), [done](const Error& error) {
         done->set_value({error, -1});
       }});
  return done->get_future();
}

std::future<Ended> receive(Job& job, std::size_t rank, std::optional<int> from, std::vector<char>& room,
                           std::uint32_t tag = 0) {
  auto done = std::make_shared<std::promise<Ended>>();
  job.nodes[rank]->group->receive(
      {from, {0, tag}, reinterpret_cast<std::byte*>(room.data()), room.size(), [done](const Error& error, int source) {
         done->set_value({error, source});
       }});
  return done->get_future();
}

const std::vector<std::vector<std::string>> kMachines{{"a", "a", "a"}, {"a", "b", "c"}, {"a", "a", "b"}};

TEST(Messages, GoBetweenAnyTwoRanksWhileTheOthersMakeNoCall) {
  for (const auto& machines : kMachines) {
    for (const auto& [from, to] : {std::pair{0, 2}, {2, 0}, {1, 0}, {0, 1}}) {
      Job job(machines);
      job.joinAll();
      for (const std::size_t bytes : {0U, 1U, 70'000U, 3'000'000U}) {
        const std::vector<char> sent(bytes, static_cast<char>('a' + from));
        std::vector<char> received(bytes);
        auto sending = send(job, static_cast<std::size_t>(from), to, sent);
        auto receiving = receive(job, static_cast<std::size_t>(to), from, received);
        EXPECT_FALSE(sending.get().error);
        EXPECT_EQ(receiving.get().from, from);
        EXPECT_EQ(received, sent);
      }
    }
  }
}

TEST(Messages, AllRanksExchangeLargeOnesWithAllAtOnce) {
  constexpr std::size_t kBytes = 2'000'000;
  Job job({"a", "b", "a", "b"});
  job.joinAll();
  std::array<std::vector<char>, 4> sent;
  std::array<std::array<std::vector<char>, 4>, 4> received;
  std::vector<std::future<Ended>> calls;
  for (std::size_t r = 0; r < 4; ++r) sent[r].assign(kBytes, static_cast<char>('a' + r));
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t other = 0; other < 4; ++other) {
      if (other == r) continue;
      calls.push_back(send(job, r, static_cast<int>(other), sent[r]));
      received[r][other].resize(kBytes);
      calls.push_back(receive(job, r, static_cast<int>(other), received[r][other]));
    }
  }
  for (auto& call : calls) EXPECT_FALSE(call.get().error);
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t other = 0; other < 4; ++other) {
      if (other == r) continue;
      EXPECT_EQ(received[r][other], sent[other]);
    }
  }
}

TEST(Messages, GoBesideCallsOfAllRanks) {
  for (const auto& machines : kMachines) {
    Job job(machines);
    job.joinAll();
    const std::vector<char> sent(100'000, 'x');
    std::vector<char> received(100'000);
    auto receiving = receive(job, 2, 0, received);
    std::vector<std::vector<float>> tensors(3, std::vector<float>(1'000, 1));
    std::vector<std::future<std::string>> sums;
    for (std::size_t r = 0; r < 3; ++r) sums.push_back(job.allReduce(r, tensors[r]));
    for (auto& sum : sums) EXPECT_EQ(sum.get(), "");
    auto sending = send(job, 0, 2, sent);
    EXPECT_FALSE(sending.get().error);
    EXPECT_FALSE(receiving.get().error);
    EXPECT_EQ(received, sent);
  }
}

TEST(Messages, ArriveThoughTheirSenderLeavesAtOnce) {
  for (const auto& machines : kMachines) {
    for (const auto& [from, to] : {std::pair<std::size_t, std::size_t>{0, 1}, {1, 0}}) {
      Job job(machines);
      job.join(from);
      const std::vector<char> sent(1'000, 'x');
      EXPECT_FALSE(send(job, from, static_cast<int>(to), sent).get().error);
      auto leaving = std::async(std::launch::async, [&job, from = from] { job.nodes[from]->group.reset(); });
      job.join(to);
      std::vector<char> received(1'000);
      EXPECT_FALSE(receive(job, to, static_cast<int>(from), received).get().error);
      EXPECT_EQ(received, sent);
      leaving.get();
      const Error after = receive(job, to, static_cast<int>(from), received).get().error;
      ASSERT_TRUE(after);
      EXPECT_EQ(after.kind(), ErrorKind::PeerLeft) << after.text();
      EXPECT_FALSE(job.nodes[to]->group->error()) << "the group goes on";
    }
  }
}

TEST(Messages, ForARankThatNeverComesHoldUpNobodysEnd) {
  for (const auto& [from, to] : {std::pair<std::size_t, std::size_t>{0, 1}, {1, 0}}) {
    Job job({"a", "b"});
    job.join(from);
    const std::vector<char> sent(1'000, 'x');
    EXPECT_FALSE(send(job, from, static_cast<int>(to), sent).get().error);
    auto pending = receive(job, from, static_cast<int>(to), const_cast<std::vector<char>&>(sent));
    job.nodes[to]->acceptor.remove(job.nodes[to]->endpoint);  // it ends its group without a call
    EXPECT_NE(pending.get().error.text().find("rank " + std::to_string(to)), std::string::npos);
    job.nodes[from]->group.reset();
  }
}

TEST(Messages, EndWithTheGroupsFirstErrorOnBothSides) {
  for (const auto& machines : kMachines) {
    Job job(machines);
    job.joinAll();
    std::vector<char> room(1'000'000);
    std::vector<char> small(10);
    auto met = receive(job, 0, 1, small, 1);
    EXPECT_FALSE(send(job, 1, 0, std::vector<char>(10, 'x'), 1).get().error);
    EXPECT_FALSE(met.get().error);
    auto receiving = receive(job, 0, 1, room);
    auto sending = send(job, 1, 0, room, 7);  // which nobody receives
    job.nodes[1]->group->abort(makeError(ErrorKind::Aborted, "rank 1 gave up"));
    EXPECT_EQ(sending.get().error.text(), "rank 1 gave up");
    EXPECT_EQ(receiving.get().error.text(), "rank 1 gave up");
    EXPECT_EQ(receive(job, 0, std::nullopt, room).get().error.text(), "rank 1 gave up");
  }
}

TEST(Messages, ThatAreLateNameTheRankThatHasNotSent) {
  Job job({"a", "b"});
  job.joinAll();
  std::vector<char> room(10);
  auto receiving = receive(job, 1, 0, room);
  job.nodes[1]->group->expire({0, "recv of 10 bytes", testing::milliseconds(50)}, 0, [] { return true; });
  const Error error = receiving.get().error;
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_NE(error.text().find("Timed out: recv of 10 bytes"), std::string::npos) << error.text();
  EXPECT_NE(error.text().find("rank 0 (host-of-a)"), std::string::npos) << error.text();
}

}  // namespace
}  // namespace fairring
