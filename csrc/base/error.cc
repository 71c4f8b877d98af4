#include "base/error.h"

#include <cerrno>
#include <system_error>

namespace fairring {

const char* name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Configuration: return "configuration";
    case ErrorKind::Usage: return "usage";
    case ErrorKind::Mismatch: return "mismatch";
    case ErrorKind::PeerDied: return "peer died";
    case ErrorKind::PeerLeft: return "peer left";
    case ErrorKind::Timeout: return "timeout";
    case ErrorKind::Connection: return "connection";
    case ErrorKind::Aborted: return "aborted";
    case ErrorKind::Refused: return "refused";
    case ErrorKind::System: return "system";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, std::string text, std::vector<int> ranks)
    : what_(std::make_shared<const What>(What{kind, std::move(text), std::move(ranks)})) {}

const std::string& Error::text() const {
  static const std::string none = "no error";
  return what_ ? what_->text : none;
}

const std::vector<int>& Error::ranks() const {
  static const std::vector<int> none;
  return what_ ? what_->ranks : none;
}

Error systemError(const char* call) {
  const int code = errno;
  return makeError(ErrorKind::System, call, ": ", std::generic_category().message(code));
}

}  // namespace fairring
