#include "group/trace.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "plan/topology.h"

namespace fairring {

namespace {

// Tracks of a rank, in the order in which they are shown; each takes the next few as far as its events overlap.
constexpr int kLanesOfTrack = 100;
constexpr std::size_t kMostText = 240;  // of a call's title

struct Event {
  int track;
  std::string name;
  std::int64_t began;
  std::int64_t ended;
  std::string args;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20) {
      out += ' ';
      continue;
    }
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter;
  }
  return out + '"';
}

template <class Items, class Show = std::identity>
std::string listOf(const Items& items, const Show& show = {}) {
  return concat('[', joined(items, ",", show), ']');
}

// Show: what stands for an entry's value.
template <class Entries, class Show>
std::string objectOf(const Entries& entries, const Show& show) {
  const auto shown = [&show](const auto& entry) { return concat('"', entry.first, "\":", show(entry.second)); };
  return concat('{', joined(entries, ",", shown), '}');
}

std::string micros(std::int64_t nanoseconds) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%lld.%03d", static_cast<long long>(nanoseconds / 1000),
                                   static_cast<int>(nanoseconds % 1000));
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string nameOf(const SliceRecord& record) {
  switch (record.kind) {
    case SliceRecord::Kind::Send: return concat("to rank ", record.peer);
    case SliceRecord::Kind::Receive: return concat("from rank ", record.peer);
    case SliceRecord::Kind::Staging: return "waits for staging";
    case SliceRecord::Kind::Step: break;
  }
  return describe({{record.verb, record.level}});
}

int trackOf(const SliceRecord& record) {
  switch (record.kind) {
    case SliceRecord::Kind::Staging: return 1;
    case SliceRecord::Kind::Step: return 2 + 3 * record.level;
    case SliceRecord::Kind::Send: return 3 + 3 * record.level;
    case SliceRecord::Kind::Receive: return 4 + 3 * record.level;
  }
  return 0;
}

std::string trackName(int track) {
  if (track < 2) return track == 0 ? "calls" : "staging";
  static const std::array<std::string, Topology::kLevels> levels{"machine", "rail", "site"};
  static const std::array<std::string, 3> parts{"", ": sent", ": received"};
  return levels.at(static_cast<std::size_t>(track - 2) / 3) + parts.at(static_cast<std::size_t>(track - 2) % 3);
}

Event eventOf(const SliceRecord& record, const std::map<std::uint64_t, std::uint64_t>& numbers, std::int64_t now) {
  const auto call = numbers.find(record.signature);
  std::string args = concat("\"call\":", call == numbers.end() ? 0 : call->second, ",\"slice\":", record.slice,
                            ",\"level\":", record.level);
  const auto add = [&args](const char* name, std::int64_t time) {
    if (time != 0) args += concat(",\"", name, "\":", micros(time));
  };
  if (record.peer >= 0) args += concat(",\"peer\":", record.peer);
  if (record.bytes > 0) args += concat(",\"bytes\":", record.bytes);
  if (record.kind == SliceRecord::Kind::Send || record.kind == SliceRecord::Kind::Receive)
    args += concat(R"(,"of":")", describe({{record.verb, record.level}}), '"');
  add("offered", record.offered);
  add("heard", record.heard);
  add("released", record.released);
  if (record.ready == 0) args += ",\"open\":true";
  return {trackOf(record), nameOf(record), record.began, record.ready == 0 ? now : record.ready, std::move(args)};
}

Event eventOf(const CallRecord& call, std::int64_t now) {
  std::string args =
      concat("\"call\":", call.number, R"(,"signature":")", call.hash, R"(","begun":)", micros(call.begun));
  if (call.ended == 0) args += ",\"open\":true";
  if (call.failed) args += ",\"failed\":true";
  return {0, call.text.str().substr(0, kMostText), call.made, call.ended == 0 ? now : call.ended, std::move(args)};
}

std::vector<Event> eventsOf(const TraceRecords& records, std::int64_t now) {
  std::vector<Event> events;
  std::map<std::uint64_t, std::uint64_t> numbers;
  for (const CallRecord& call : records.calls) {
    events.push_back(eventOf(call, now));
    numbers[call.hash] = call.number;
  }
  for (const SliceRecord& record : records.slices) events.push_back(eventOf(record, numbers, now));
  std::ranges::stable_sort(events, {}, &Event::began);
  return events;
}

// Events that overlap stand side by side: viewers expect those of one thread to nest.
class Lanes {
 public:
  int take(const Event& event) {
    std::vector<std::int64_t>& ends = ends_[event.track];
    const auto free = std::ranges::find_if(ends, [&](std::int64_t end) { return end <= event.began; });
    const auto lane = static_cast<int>(free - ends.begin());
    if (free == ends.end()) {
      ends.push_back(event.ended);
    } else {
      *free = event.ended;
    }
    return event.track * kLanesOfTrack + lane % kLanesOfTrack;
  }
  const std::map<int, std::vector<std::int64_t>>& used() const { return ends_; }

 private:
  std::map<int, std::vector<std::int64_t>> ends_;  // by track: of the last event of each lane
};

std::string metadata(const char* what, int rank, int thread, const std::string& name) {
  return concat(R"({"ph":"M","name":")", what, R"(","pid":)", rank, ",\"tid\":", thread, R"(,"args":{"name":)",
                quoted(name), "}}");
}

std::string sightingOf(const PeerProgress::Sighting& one) {
  std::string out = concat("{\"by\":", one.by, ",\"rank\":", one.rank);
  if (one.progress)
    out += concat(",\"calls\":", one.progress->calls, ",\"last\":", quoted(one.progress->last.substr(0, kMostText)));
  if (one.silent) out += concat(",\"silent_ns\":", *one.silent);
  return out + '}';
}

std::string messageOf(const MessageWait& one) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(one.since.time_since_epoch()).count();
  std::string out =
      concat("{\"sends\":", one.sends ? "true" : "false", ",\"tag\":", one.label.tag, ",\"since_ns\":", since);
  if (one.peer) out += concat(",\"peer\":", *one.peer);
  return out + '}';
}

// What tells of a job that is stuck.
std::string stuckData(const TraceFacts& facts) {
  return concat(",\"seen\":", listOf(facts.sightings, sightingOf), ",\"missing\":", listOf(facts.missing),
                ",\"messages\":", listOf(facts.messages, messageOf), ",\"absent\":", listOf(facts.absent),
                ",\"program\":", quoted(facts.program));
}

std::string otherData(const TraceFacts& facts) {
  const auto packets = [](const auto& count) {
    return concat(R"({"sent":)", count.sent, ",\"again\":", count.again, '}');
  };
  return concat(
      R"({"producer":"fairring","group":)", quoted(facts.group), ",\"rank\":", facts.rank,
      ",\"machines\":", listOf(facts.machines, quoted), ",\"hosts\":", listOf(facts.hosts, quoted),
      ",\"sites\":", listOf(facts.sites, quoted), ",\"staging_bytes\":", facts.stagingBytes, ",\"now_ns\":", facts.now,
      ",\"unix_ns\":", facts.unixNow, ",\"clock_leads_ns\":", objectOf(facts.clockLeads, std::identity()),
      ",\"packets\":", objectOf(facts.packets, packets),
      ",\"bytes_by_level\":", objectOf(facts.traffic, [](const auto& moved) { return moved.bytes; }),
      R"(,"processor":{"ran_ns":)", facts.processor.ran, ",\"waited_ns\":", facts.processor.waited,
      "},\"error\":", quoted(facts.error), ",\"device_way\":", quoted(facts.deviceWay), stuckData(facts), "}");
}

}  // namespace

ProcessorTime ProcessorTime::now() {
  ProcessorTime all;
  std::error_code none;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream line(task.path() / "schedstat");
    ProcessorTime one;
    if (!(line >> one.ran >> one.waited)) continue;
    all.ran += one.ran;
    all.waited += one.waited;
  }
  return all;
}

std::string chromeTrace(const TraceFacts& facts, const TraceRecords& records) {
  const std::string host = facts.hosts.at(static_cast<std::size_t>(facts.rank));
  std::string out = concat(R"({"displayTimeUnit":"ms","otherData":)", otherData(facts), ",\n\"traceEvents\":[\n");
  out += metadata("process_name", facts.rank, 0, concat("rank ", facts.rank, " (", host, ")"));
  Lanes lanes;
  for (const Event& event : eventsOf(records, facts.now)) {
    out += concat(",\n{\"ph\":\"X\",\"name\":", quoted(event.name), ",\"pid\":", facts.rank,
                  ",\"tid\":", lanes.take(event), ",\"ts\":", micros(event.began),
                  ",\"dur\":", micros(event.ended - event.began), ",\"args\":{", event.args, "}}");
  }
  for (const auto& [track, ends] : lanes.used()) {
    const int used = std::min(static_cast<int>(ends.size()), kLanesOfTrack);
    for (int lane = 0; lane < used; ++lane)
      out += concat(",\n", metadata("thread_name", facts.rank, track * kLanesOfTrack + lane, trackName(track)));
  }
  return out + "\n]}\n";
}

void writeTraceFile(const std::string& directory, const std::string& group, int rank, const std::string& trace) {
  std::string name = concat(group, "-rank", rank, ".json");
  std::ranges::replace(name, '/', '_');
  const std::filesystem::path path = std::filesystem::path(directory) / name;
  const std::filesystem::path partial = concat(path.string(), '.', Recorder::now(), ".part");  // others may write too
  errno = 0;
  std::ofstream file(partial, std::ios::binary);
  file << trace;
  file.close();
  std::error_code why(file ? 0 : errno, std::generic_category());
  if (file) std::filesystem::rename(partial, path, why);
  if (file && !why) return;
  std::error_code none;
  std::filesystem::remove(partial, none);
  throw Failure(makeError(ErrorKind::System, "rank ", rank, " of group ", group, " can't write its trace of ",
                          trace.size(), " bytes to ", path.string(), " (", why.message(),
                          "), so these records are lost; FAIRRING_TRACE must name a directory with room for them"));
}

void writeTraceOrSay(const std::string& directory, const TraceFacts& facts, const TraceRecords& records) noexcept {
  try {
    writeTraceFile(directory, facts.group, facts.rank, chromeTrace(facts, records));
  } catch (const std::exception& exception) {
    std::cerr << "fairring: " << exception.what() << std::endl;  // NOLINT(performance-avoid-endl): once
  }
}

}  // namespace fairring
