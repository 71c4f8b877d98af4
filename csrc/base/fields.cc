#include "base/fields.h"

namespace fairring {

void FieldWriter::write(std::string_view field) {
  text_ += std::to_string(field.size());
  text_ += ':';
  text_ += field;
  text_ += ',';
}

std::string_view FieldReader::next() {
  std::size_t size = 0;
  const auto [colon, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
  const auto digits = static_cast<std::size_t>(colon - rest_.data());
  const std::size_t left = rest_.size() - digits;
  // It stands between a colon and a comma. No leading zeros: a value has one text.
  require(code == std::errc() && left >= 2 && size <= left - 2 && std::to_string(size).size() == digits);
  if (isWrong_ || rest_[digits] != ':' || rest_[digits + 1 + size] != ',') {
    isWrong_ = true;
    return {};
  }
  const std::string_view field = rest_.substr(digits + 1, size);
  rest_.remove_prefix(digits + 2 + size);
  return field;
}

}  // namespace fairring
