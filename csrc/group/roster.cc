#include "group/roster.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/error.h"

namespace fairring {
namespace {

constexpr const char* kHead = "fairring handle 1 ";
constexpr std::size_t kTokenDigits = 64;
constexpr std::size_t kShown = 80;

bool isToken(const std::string& text) {
  return text.size() == kTokenDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string newToken() { return keyedName(randomSecret(), "token", ""); }

std::string encode(const Handle& handle) {
  return concat(kHead, handle.token, " ", handle.rank, " ", encode(handle.facts));
}

Handle decodeHandle(const std::string& text) {
  const auto failure = [&text] {
    return Failure(makeError(ErrorKind::Usage, "'", text.substr(0, kShown),
                             "' is no handle of this version of fairring: pass what get_reconfigure_handle() returned ",
                             "on each member, with the same version on all"));
  };
  const std::size_t head = std::string(kHead).size();
  const std::size_t afterToken = text.find(' ', head);
  const std::size_t afterRank = afterToken == std::string::npos ? afterToken : text.find(' ', afterToken + 1);
  if (!text.starts_with(kHead) || afterRank == std::string::npos) throw failure();
  Handle handle{.token = text.substr(head, afterToken - head), .facts = {}};
  const char* const rankEnd = text.data() + afterRank;
  const auto [end, code] = std::from_chars(text.data() + afterToken + 1, rankEnd, handle.rank);
  if (!isToken(handle.token) || code != std::errc() || end != rankEnd || handle.rank < 0) throw failure();
  try {
    handle.facts = decodeFacts(text.substr(afterRank + 1));
  } catch (const Failure&) {
    throw failure();
  }
  return handle;
}

std::vector<std::string> inOrder(std::vector<std::string> handles) {
  std::vector<std::pair<int, std::string>> byRank;
  byRank.reserve(handles.size());
  for (std::string& text : handles) byRank.emplace_back(decodeHandle(text).rank, std::move(text));
  std::ranges::sort(byRank);
  std::ranges::transform(byRank, handles.begin(), [](auto& one) { return std::move(one.second); });
  return handles;
}

Roster rosterOf(const std::vector<std::string>& handles, const std::string& token, std::int64_t uuid,
                const Secret& base) {
  Roster roster;
  std::string agreed = concat(uuid, "\n", handles.size());
  std::map<std::string, std::size_t> rankOf;  // by token
  for (const std::string& text : handles) {
    Handle handle = decodeHandle(text);
    const auto [earlier, isNew] = rankOf.try_emplace(handle.token, roster.facts.size());
    check(isNew, ErrorKind::Usage, "handles ", earlier->second, " and ", roster.facts.size(), " are of the same rank (",
          handle.facts.hostname, " port ", handle.facts.port, "): give each member's handle once");
    roster.facts.push_back(std::move(handle.facts));
    agreed += concat("\n", text.size(), "\n", text);
  }
  const auto own = rankOf.find(token);
  check(own != rankOf.end(), ErrorKind::Usage, "this rank's own handle is not among the ", handles.size(),
        " handles: only the members of the new group reconfigure it, each with its own handle among them");
  roster.rank = static_cast<int>(own->second);
  roster.secret = derivedSecret(base, "reconfigure", agreed);
  return roster;
}

}  // namespace fairring
