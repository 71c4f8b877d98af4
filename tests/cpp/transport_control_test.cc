// Control connections: messages in both directions, heartbeats, and the ways to notice a death.
#include "transport/control.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <condition_variable>
#include <future>

#include "transport/socket.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;

std::pair<Descriptor, Descriptor> socketPair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// One side, with its threads. The calls that it gets are kept, and can be waited for.
class Side final : public ControlReceiver {
 public:
  explicit Side(milliseconds heartbeatTimeout, std::string beat = "beat") {
    loop.runAndWait([&] {
      control = std::make_unique<Control>(loop.loop(), vitals, *this,
                                          Heartbeat{heartbeatTimeout, [beat = std::move(beat)] { return beat; }});
    });
  }
  ~Side() override {
    loop.runAndWait([this] { control.reset(); });
  }
  void add(int peer, Descriptor socket) {
    loop.runAndWait([&] { control->add(peer, std::move(socket)); });
  }
  void send(ControlType type, const std::string& text, const std::vector<int>& descriptors = {}) {
    loop.runAndWait([&] { control->send(7, type, text, descriptors); });
  }
  void onControl(int, ControlMessage message) override { keep(message.type, message.text, message.descriptors.size()); }
  void onControlEnded(int, const Error& error) override {
    keep(ControlType::Leave, concat("ended ", error ? error.text() : ""), 0);
  }
  void onSilent(int, milliseconds) override { keep(ControlType::Leave, "silent", 0); }
  void onTrouble(const Error& error) override { keep(ControlType::Leave, concat("trouble: ", error.text()), 0); }

  // The first message that matches; it is dropped, and so are those before it.
  std::size_t await(const std::string& text) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !texts_.empty(); });
      const auto [first, descriptors] = texts_.front();
      texts_.erase(texts_.begin());
      if (first == text) return descriptors;
    }
  }

  LoopThread loop;
  LoopThread vitals;
  std::unique_ptr<Control> control;

 private:
  void keep(ControlType type, const std::string& text, std::size_t descriptors) {
    const std::lock_guard lock(mutex_);
    const std::string prefix = type == ControlType::Heartbeat ? "pulse " : type == ControlType::Here ? "here" : "";
    texts_.emplace_back(prefix + text, descriptors);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, std::size_t>> texts_;
};

constexpr milliseconds kNever{3'600'000};

TEST(Control, MessagesAndDescriptorsArriveInOrder) {
  Side one(kNever);
  Side other(kNever);
  auto [near, far] = socketPair();
  one.add(7, std::move(near));
  other.add(7, std::move(far));
  const std::string large(Control::kMaxText, 'x');
  one.send(ControlType::Failed, "first");
  one.send(ControlType::Segment, "", {0, 1});
  for (int i = 0; i < 50; ++i) one.send(ControlType::Failed, large);
  one.send(ControlType::Leave, "last");
  EXPECT_EQ(other.await("first"), 0U);
  EXPECT_EQ(other.await(""), 2U);
  for (int i = 0; i < 50; ++i) other.await(large);
  other.await("last");
}

TEST(Control, BeatsComeByThemselvesWhileTheLoopIsBusy) {
  Side one(milliseconds(20), "one's");
  Side other(kNever);
  auto [near, far] = socketPair();
  std::promise<void> goOn;
  one.add(7, std::move(near));
  one.loop.loop().post([&] { goOn.get_future().wait(); });
  other.add(7, std::move(far));
  for (int i = 0; i < 3; ++i) other.await("pulse one's");
  goOn.set_value();
}

TEST(Control, SilenceIsReported) {
  Side one(milliseconds(20));
  auto [near, far] = socketPair();
  one.add(7, std::move(near));
  one.await("silent");
  one.await("silent");
}

TEST(Control, TheFirstWordIsThatThisRankHasCome) {
  Side one(kNever);
  Side other(kNever);
  auto [near, far] = socketPair();
  one.add(7, std::move(near));
  other.add(7, std::move(far));
  other.await("here");
}

TEST(Control, APeerThatClosesHasEnded) {
  Side one(kNever);
  auto [near, far] = socketPair();
  one.add(7, std::move(near));
  std::array<char, 8> here{};  // unread, it would make a reset of the end
  pollfd readable{.fd = far.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&readable, 1, -1), 1);
  ASSERT_EQ(::recv(far.get(), here.data(), here.size(), 0), 8);
  far.reset();
  one.await("ended ");
  one.send(ControlType::Failed, "to nobody");
}

TEST(Control, AMessageThatIsTooLongEndsTheConnection) {
  Side one(kNever);
  auto [near, far] = socketPair();
  one.add(7, std::move(near));
  const std::array<char, 8> header{3, 0, 0, 0, 1, 0, 1, 0};  // 64 KiB and one byte
  ASSERT_EQ(::send(far.get(), header.data(), header.size(), 0), 8);
  one.await("ended a control message of 65537 bytes with 0 descriptors; the most are 65536 and 4");
}

// The child connects, and ends; its end of the connection lives on here.
TEST(Control, TheEndOfAProcessIsNoticedThoughItsSocketIsStillOpen) {
  const SocketAddress address = localAddressOf("127.0.0.1", ::getpid() % 60'000 + 1);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address.storage), address.length), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  const int shared = ::socket(AF_UNIX, SOCK_STREAM, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(::connect(shared, reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0 ? 0 : 1);
  }
  const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  ASSERT_GE(accepted, 0);
  Side one(kNever);
  one.add(7, Descriptor(accepted));
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  one.await("ended ");
  ::close(shared);
  ::close(listener);
}

}  // namespace
}  // namespace fairring
