#include "group/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "group_job.h"

namespace fairring {
namespace {

using testing::Job;

constexpr int kLooks = 100'000;  // at a trace, until it shows the work under way

bool shows(const std::string& trace, const std::string& text) { return trace.find(text) != std::string::npos; }

// The text of the step of that name in call 2, up to the end of its line.
std::string stepOf(const std::string& trace, const std::string& name) {
  const std::string call = "\"call\":2,";
  for (std::size_t at = trace.find(R"("name":")" + name + "\""); at != std::string::npos;
       at = trace.find(R"("name":")" + name + "\"", at + 1)) {
    const std::string line = trace.substr(at, trace.find('\n', at) - at);
    if (shows(line, call)) return line;
  }
  return "";
}

TEST(Trace, NamesTheRankThatIsWaitedForWhileItIsAndAfterwards) {
  for (const auto& machines : {std::vector<std::string>{"a", "a"}, {"a", "b"}}) {
    Job job(machines);
    job.joinAll();
    std::vector<float> tensors[] = {std::vector<float>(100), std::vector<float>(100)};
    auto first = job.allReduce(0, tensors[0]);
    job.allReduce(1, tensors[1]).get();
    EXPECT_EQ(first.get(), "");

    auto waiting = job.allReduce(0, tensors[0]);
    const bool isOneMachine = machines[0] == machines[1];
    const std::string name = isOneMachine ? "AR0" : "AR1";
    std::string step;
    for (int look = 0; look < kLooks && !shows(step, "\"peer\":1"); ++look)
      step = stepOf(job.nodes[0]->group->trace(kAllCalls), name);
    EXPECT_TRUE(shows(step, "\"open\":true")) << step;
    EXPECT_TRUE(shows(step, "\"peer\":1")) << step;

    EXPECT_EQ(job.allReduce(1, tensors[1]).get(), "");
    EXPECT_EQ(waiting.get(), "");
    step = stepOf(job.nodes[0]->group->trace(kAllCalls), name);
    EXPECT_TRUE(shows(step, "\"peer\":1")) << step;
    EXPECT_FALSE(shows(step, "\"open\"")) << step;
    const std::string last = job.nodes[0]->group->trace(1);
    EXPECT_TRUE(shows(last, "\"call\":2,")) << last;
    EXPECT_FALSE(shows(last, "\"call\":1,")) << last;
    EXPECT_FALSE(shows(last, "\"call\":0,")) << last;  // a step of a call that is not there
  }
}

TEST(Trace, TellsOfLargeMessages) {
  Job job({"a", "b"});
  job.joinAll();
  std::vector<float> tensors[] = {std::vector<float>(100'000), std::vector<float>(100'000)};
  auto done = job.allReduce(0, tensors[0]);
  EXPECT_EQ(job.allReduce(1, tensors[1]).get(), "");
  EXPECT_EQ(done.get(), "");
  std::string trace;  // has it when the peer has acknowledged it, which may be after the call
  for (int look = 0; look < kLooks && !shows(trace, R"("name":"to rank 1")"); ++look)
    trace = job.nodes[0]->group->trace(kAllCalls);
  EXPECT_TRUE(shows(trace, "\"name\":\"to rank 1\""));
}

TEST(Trace, SaysWhoHasTheCallsOnADevice) {
  Job job({"a", "b"});
  job.joinAll();
  EXPECT_TRUE(shows(job.nodes[0]->group->trace(kAllCalls), R"("device_way":"")"));
  job.nodes[0]->group->noteDeviceWay("NCCL's, by a \"trial\"");
  EXPECT_TRUE(shows(job.nodes[0]->group->trace(kAllCalls), R"("device_way":"NCCL's, by a \"trial\"")"));
}

TEST(Trace, QuotesWhatUsersNamed) {
  const CallRecord call{.number = 1, .text = "a \"call\"\n", .made = 1'000'001};
  TraceFacts facts;
  facts.group = "g\\h";
  facts.machines = {"m"};
  facts.hosts = {"\"h\""};
  facts.sites = {"s\\"};
  const std::string trace = chromeTrace(facts, {{call}, {}});
  EXPECT_TRUE(shows(trace, R"("name":"a \"call\" ")")) << trace;
  EXPECT_TRUE(shows(trace, R"("group":"g\\h")")) << trace;
  EXPECT_TRUE(shows(trace, R"("sites":["s\\"])")) << trace;
  EXPECT_TRUE(shows(trace, R"("ts":1000.001,)")) << trace;
}

TEST(Trace, NamesATrackForEachLevel) {
  TraceFacts facts;
  facts.machines = facts.hosts = {"a name"};
  TraceRecords records;
  for (int level = 0; level < Topology::kLevels; ++level)
    records.slices.push_back({.kind = SliceRecord::Kind::Receive, .level = static_cast<std::uint16_t>(level)});
  const std::string trace = chromeTrace(facts, records);
  for (const std::string level : {"machine", "rail", "site"})
    EXPECT_TRUE(shows(trace, R"("args":{"name":")" + level + ": received\"")) << trace;
}

TEST(Trace, IsWrittenWholeOrNotAtAll) {
  const std::filesystem::path directory = std::filesystem::path(::testing::TempDir()) / "fairring-trace";
  std::filesystem::create_directories(directory);
  writeTraceFile(directory.string(), "a/b", 3, "{}");
  std::ifstream file(directory / "a_b-rank3.json");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "{}");
  std::filesystem::remove_all(directory);
  EXPECT_THROW(writeTraceFile(directory.string(), "a/b", 3, "{}"), Failure);
}

}  // namespace
}  // namespace fairring
