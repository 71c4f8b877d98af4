#include "base/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <string>
#include <thread>

#include "base/loop_thread.h"

namespace fairring {
namespace {

class Helped : public testing::Test {
 protected:
  Helped() {
    thread_.runAndWait([this] { thread_.loop().setHelpers(2); });
  }

  Loop& loop() { return thread_.loop(); }
  void onLoop(const Loop::Task& task) { thread_.runAndWait(task); }
  // Keeps the loop's thread in one task, so that helpers alone run shared jobs meanwhile.
  void whileLoopIsBusy(const std::function<void()>& share, const std::function<void()>& meanwhile) {
    onLoop([&] {
      share();
      meanwhile();
    });
  }

  LoopThread thread_;
  const std::thread::id here_ = std::this_thread::get_id();
};

TEST_F(Helped, PiecesOfSharedJobsRunOnHelpersOneAfterTheOther) {
  constexpr int kPieces = 1000;
  int pieces = 0;  // not atomic: the thread sanitizer sees that pieces follow one another
  std::binary_semaphore over{0};
  std::binary_semaphore done{0};
  std::thread::id doneBy;
  std::thread::id loopThread;
  const auto share = [&] {
    loopThread = std::this_thread::get_id();
    const auto piece = [&] {
      if (++pieces < kPieces) return true;
      over.release();
      return false;
    };
    loop().share(this, 0, piece, [&] {
      doneBy = std::this_thread::get_id();
      done.release();
    });
  };
  whileLoopIsBusy(share, [&] { over.acquire(); });
  done.acquire();
  EXPECT_EQ(pieces, kPieces);
  EXPECT_EQ(doneBy, loopThread);
}

TEST_F(Helped, SeveralJobsRunAtOnce) {
  std::binary_semaphore first{0};
  std::binary_semaphore second{0};
  std::counting_semaphore<2> done{0};
  const auto share = [&] {
    const auto release = [&] { done.release(); };
    loop().share(this, 0, [&] { return first.release(), second.acquire(), false; }, release);
    loop().share(this, 0, [&] { return second.release(), first.acquire(), false; }, release);
  };
  // Either waits for the other, and the loop's own thread for both.
  whileLoopIsBusy(share, [] {});
  done.acquire();
  done.acquire();
}

TEST_F(Helped, ADroppedJobsPieceHasEndedAndNothingFollows) {
  std::binary_semaphore began{0};
  std::atomic<bool> isRunning{false};
  bool isDone = false;
  onLoop([&] {
    const auto piece = [&] {
      isRunning = true;
      began.release();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      isRunning = false;
      return true;
    };
    loop().share(this, 0, piece, [&] { isDone = true; });
    began.acquire();
    loop().dropWork(this);
    EXPECT_FALSE(isRunning);
  });
  onLoop([] {});
  EXPECT_FALSE(isRunning);
  EXPECT_FALSE(isDone);
}

TEST_F(Helped, AnEndedJobThatIsDroppedIsNotReported) {
  std::binary_semaphore ended{0};
  bool isDone = false;
  onLoop([&] {
    loop().share(this, 0, [&] { return ended.release(), false; }, [&] { isDone = true; });
    ended.acquire();
    loop().dropWork(this);
  });
  onLoop([] {});
  EXPECT_FALSE(isDone);
}

TEST_F(Helped, AnExceptionOnAHelperIsReportedOnTheLoop) {
  std::binary_semaphore thrown{0};
  std::binary_semaphore reported{0};
  Error error;
  onLoop([&] {
    loop().onUncaught(this, [&](const Error& one) {
      error = one;
      reported.release();
    });
    const auto piece = [&]() -> bool {
      thrown.release();
      throw Failure(makeError(ErrorKind::System, "no luck"));
    };
    loop().share(this, 0, piece, [] { FAIL(); });
    thrown.acquire();
  });
  reported.acquire();
  onLoop([&] { loop().forgetUncaught(this); });
  EXPECT_EQ(error.text(), "no luck");
}

TEST(WorkQueue, AnExceptionOfASharedPieceOnTheLoopMayDropItsJob) {
  LoopThread thread;
  std::binary_semaphore reported{0};
  thread.runAndWait([&] {
    thread.loop().onUncaught(&thread, [&](const Error&) {
      thread.loop().dropWork(&thread);
      reported.release();
    });
    const auto piece = []() -> bool { throw Failure(makeError(ErrorKind::System, "no luck")); };
    thread.loop().share(&thread, 0, piece, [] { FAIL(); });
  });
  reported.acquire();
  thread.runAndWait([&] { thread.loop().forgetUncaught(&thread); });
}

TEST(WorkQueue, SharedJobsAreTheLoopsWhereThereAreNoHelpers) {
  LoopThread thread;
  std::string order;
  std::binary_semaphore done{0};
  thread.runAndWait([&] {
    thread.loop().share(
        &order, 2, [&] { return order += 'b', order.size() < 3; }, [&] { order += 'B', done.release(); });
    thread.loop().share(&order, 1, [&] { return order += 'a', false; }, [&] { order += 'A'; });
  });
  done.acquire();
  EXPECT_EQ(order, "aAbB");
}

}  // namespace
}  // namespace fairring
