#include "group/roster.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fields.h"

namespace fairring {
namespace {

constexpr std::size_t kTokenDigits = 64;

}  // namespace

std::string newToken() { return keyedName(randomSecret(), "token", ""); }

bool isToken(const std::string& text) {
  return text.size() == kTokenDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Handle readHandle(const std::string& text) {
  return valueOf<Handle>(text, ErrorKind::Usage, "'", shownOf(text),
                         "' is no handle of this version of fairring: pass what get_reconfigure_handle() returned on ",
                         "each member, with the same version on all");
}

std::vector<std::string> inOrder(std::vector<std::string> handles) {
  std::vector<std::pair<int, std::string>> byRank;
  byRank.reserve(handles.size());
  for (std::string& text : handles) byRank.emplace_back(readHandle(text).rank, std::move(text));
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
    Handle handle = readHandle(text);
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
