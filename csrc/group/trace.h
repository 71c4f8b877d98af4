// A rank's records as a trace that Perfetto and Chrome open: the JSON of Chrome's trace event format, with what is not
// an event in `otherData`. Times are microseconds of this machine's steady clock; fairring/trace brings those of
// several ranks together. Values and functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "exchange/point_to_point.h"
#include "exchange/recorder.h"
#include "exchange/traffic.h"
#include "group/peer_progress.h"
#include "transport/channel.h"

namespace fairring {

// How long the threads of this process have run, and how long they were queued for a processor, since they began.
// Nanoseconds; zeros where the system does not tell.
struct ProcessorTime {
  std::uint64_t ran = 0;
  std::uint64_t waited = 0;

  static ProcessorTime now();
};

constexpr std::size_t kAllCalls = std::numeric_limits<std::size_t>::max();  // that are kept

struct TraceFacts {
  std::string group;
  int rank = 0;
  std::vector<std::string> machines;  // of each rank
  std::vector<std::string> hosts;     // likewise
  std::vector<std::string> sites;     // likewise
  std::uint64_t stagingBytes = 0;
  std::int64_t now = 0;                    // when these facts were taken, by the recorder's clock
  std::int64_t unixNow = 0;                // the date then, in nanoseconds
  std::map<int, Packets> packets;          // to each rail peer
  TrafficByLevel traffic;                  // so far
  std::map<int, std::int64_t> clockLeads;  // as PeerProgress has them
  ProcessorTime processor;                 // since the group was made, of threads that still run
  std::string error;                       // of the group; empty: none
  std::string deviceWay;                   // who has the calls on CUDA tensors, and why; empty: nobody has asked

  // The rest tells about a job that is stuck.
  std::vector<PeerProgress::Sighting> sightings;
  std::set<int> missing;              // ranks from whom the calls under way need something
  std::vector<MessageWait> messages;  // that this rank waits for
  std::vector<int> absent;            // ranks that have not made the group; it is not there yet
  std::string program;                // where the main thread stands; empty: that is not known
};

struct TraceRecords {
  std::vector<CallRecord> calls;
  std::vector<SliceRecord> slices;  // with steps that are under way
};

std::string chromeTrace(const TraceFacts& facts, const TraceRecords& records);

// Writes <group>-rank<number>.json in one go: a reader sees an older trace or the whole of this one. Throws
// Failure(System).
void writeTraceFile(const std::string& directory, const std::string& group, int rank, const std::string& trace);

// The trace's file; that it can't be written is said on stderr, for a full disk must not keep a training from ending.
void writeTraceOrSay(const std::string& directory, const TraceFacts& facts, const TraceRecords& records) noexcept;

}  // namespace fairring
