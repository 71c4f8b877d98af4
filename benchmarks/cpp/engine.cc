// Small all-reduces on the engine, below torch and Python: time of a call beside bare sockets, in the same run. Started
// once per rank by the lab or by torchrun --no-python; rank 0 prints a line of JSON for each size and contender.
//
//   fairring lab --machines 2 --ranks 2 --only-rank 0 -- fairring_engine_bench --calls 3000 --sizes 4,64,512,4096
#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "engine_group.h"
#include "race.h"
#include "raw_exchange.h"

#ifdef FAIRRING_WITH_TENSORPIPE
#include "transport/tensorpipe_channel.h"
#endif

namespace fairring {
namespace {

constexpr std::size_t kCallsOfBlock = 250;
constexpr std::size_t kWarmUp = 25;

struct Options {
  std::vector<std::size_t> sizes{4, 64, 512, 4096};
  std::size_t calls = 3000;
};

std::vector<std::size_t> numbersIn(const std::string& text) {
  std::vector<std::size_t> numbers;
  std::istringstream pieces(text);
  for (std::string piece; std::getline(pieces, piece, ',');)
    numbers.push_back(std::strtoull(piece.c_str(), nullptr, 10));
  return numbers;
}

Options parse(int count, char** arguments) {
  const option known[] = {{"sizes", required_argument, nullptr, 's'}, {"calls", required_argument, nullptr, 'c'}, {}};
  Options options;
  for (int letter = 0; (letter = ::getopt_long(count, arguments, "", known, nullptr)) != -1;) {
    check(letter != '?', ErrorKind::Usage, "options are --sizes BYTES,... and --calls N");
    if (letter == 's') options.sizes = numbersIn(optarg);
    if (letter == 'c') options.calls = numbersIn(optarg).front();
  }
  for (const std::size_t bytes : options.sizes) {
    check(bytes >= sizeof(float) && bytes % sizeof(float) == 0 && bytes <= RawExchange::kMostBytes, ErrorKind::Usage,
          "--sizes: ", bytes, " is no multiple of 4 up to ", RawExchange::kMostBytes);
  }
  return options;
}

std::vector<std::unique_ptr<Contender>> makeContenders(Meeting& meeting, EngineThreads& threads) {
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(std::make_unique<EngineGroup>(meeting, threads, tcpTransport()));
#ifdef FAIRRING_WITH_TENSORPIPE
  contenders.push_back(std::make_unique<EngineGroup>(meeting, threads, tensorPipeTransport("uv")));
#endif
  contenders.push_back(std::make_unique<RawExchange>(meeting, RawExchange::Wait::Spin));
  contenders.push_back(std::make_unique<RawExchange>(meeting, RawExchange::Wait::Sleep));
  return contenders;
}

// Nearest rank.
double percentile(std::vector<double> values, double percent) {
  const auto place = static_cast<std::size_t>(percent / 100 * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(place));
  return values[place];
}

void print(std::size_t bytes, const Score& score) {
  std::printf(R"({"bytes": %zu, "contender": "%s", "calls": %zu, "p50_us": %.2f, "p99_us": %.2f, "wrong": %llu})"
              "\n",
              bytes, score.contender.c_str(), score.seconds.size(), 1e6 * percentile(score.seconds, 50),
              1e6 * percentile(score.seconds, 99), static_cast<unsigned long long>(score.wrong));
  std::fflush(stdout);
}

// The exit code: 1 where an element was wrong.
int run(const Options& options) {
  Meeting meeting;
  EngineThreads threads(meeting);
  const auto contenders = makeContenders(meeting, threads);
  std::uint64_t wrong = 0;
  for (const std::size_t bytes : options.sizes) {
    const std::size_t blocks = (options.calls + kCallsOfBlock - 1) / kCallsOfBlock;
    for (const Score& score : race(meeting, {bytes, blocks, kCallsOfBlock, kWarmUp}, contenders)) {
      wrong += score.wrong;
      if (meeting.rank() == 0) print(bytes, score);
    }
  }
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace fairring

int main(int count, char** arguments) {
  try {
    return fairring::run(fairring::parse(count, arguments));
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "fairring_engine_bench: %s\n", exception.what());
    return 2;
  }
}
