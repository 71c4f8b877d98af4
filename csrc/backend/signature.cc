#include "backend/signature.h"

#include <string>
#include <string_view>

#include "backend/reduction.h"
#include "base/error.h"

namespace fairring {
namespace {

// As the engine names them: by their bits.
std::string nameOf(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Byte: return "UInt8";
    case at::ScalarType::Char: return "Int8";
    case at::ScalarType::Short: return "Int16";
    case at::ScalarType::Int: return "Int32";
    case at::ScalarType::Long: return "Int64";
    case at::ScalarType::Half: return "Float16";
    case at::ScalarType::Float: return "Float32";
    case at::ScalarType::Double: return "Float64";
    case at::ScalarType::ComplexFloat: return "Complex64";
    case at::ScalarType::ComplexDouble: return "Complex128";
    default: return c10::toString(dtype);
  }
}

std::string textOf(const Operation& operation, const Common& common) {
  std::string text = operation.verb;
  if (common.reduction) text += concat(" ", name(*common.reduction));
  if (!common.tensors.empty()) {
    const at::Tensor& first = common.tensors.front();
    text += " of ";
    if (!common.dtypesOnly) {
      if (common.tensors.size() > 1) text += concat(common.tensors.size(), " tensors, the first of ");
      text += concat(first.numel(), " ");
    }
    text += nameOf(first.scalar_type());
  }
  if (common.root) text += concat(", root ", *common.root);
  return text;
}

// FNV-1a: the same on all ranks, whatever compiled them.
class Digest {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    add(std::uint64_t{bytes.size()});
  }
  void add(std::uint64_t number) {
    for (int byte = 0; byte < 8; ++byte) value_ = (value_ ^ ((number >> (8 * byte)) & 0xffU)) * 0x100000001b3U;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

std::uint64_t digestOf(const Operation& operation, const Common& common) {
  Digest digest;
  digest.add(operation.verb);
  digest.add(common.reduction ? std::uint64_t{static_cast<unsigned>(*common.reduction)} + 1 : 0U);
  digest.add(common.root ? static_cast<std::uint64_t>(*common.root) + 1 : 0U);
  for (const at::Tensor& tensor : common.tensors) {
    digest.add(static_cast<std::uint64_t>(tensor.scalar_type()));
    if (common.dtypesOnly) break;  // how many there are may differ as well
    digest.add(static_cast<std::uint64_t>(tensor.numel()));
  }
  return digest.value();
}

}  // namespace

Signature signatureOf(const Operation& operation, const Common& common) {
  return {textOf(operation, common), digestOf(operation, common)};
}

}  // namespace fairring
