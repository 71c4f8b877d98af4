#include "base/patient_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

namespace fairring {
namespace {

using Clock = PatientThread::Clock;
constexpr std::chrono::minutes kLong{5};

TEST(PatientThread, IsWaitedForUntilItsWorkIsOverAndWhatItOwnsIsDropped) {
  std::promise<void> opened;
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> left = owned;
  PatientThread thread([open = opened.get_future().share(), owned = std::move(owned)] { open.wait(); });
  opened.set_value();
  EXPECT_TRUE(thread.endBy(Clock::now() + kLong));
  EXPECT_TRUE(left.expired());
  EXPECT_TRUE(thread.endBy(Clock::now()));
}

TEST(PatientThread, IsLeftBehindWithWhatItOwnsIfItsWorkDoesNotEnd) {
  std::promise<void> opened;
  std::promise<int> said;
  std::future<int> heard = said.get_future();
  {
    PatientThread thread(
        [open = opened.get_future().share(), said = std::make_shared<std::promise<int>>(std::move(said))] {
          open.wait();
          said->set_value(1);
        });
    EXPECT_FALSE(thread.endBy(Clock::now()));
  }
  opened.set_value();
  EXPECT_EQ(heard.get(), 1);
}

}  // namespace
}  // namespace fairring
