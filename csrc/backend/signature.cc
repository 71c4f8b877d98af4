#include "backend/signature.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "backend/reduction.h"
#include "base/error.h"
#include "exchange/site_format.h"

namespace fairring {
namespace {

// The engine names dtypes by their bits.
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

bool areAlike(const std::vector<at::Tensor>& tensors) {
  return std::ranges::all_of(tensors, [&first = tensors.front()](const at::Tensor& tensor) {
    return tensor.numel() == first.numel() && tensor.scalar_type() == first.scalar_type();
  });
}

// The others, as many as have room, and the total number of elements: two long lists that differ further on mostly
// differ in that.
std::string othersOf(const std::vector<at::Tensor>& tensors) {
  constexpr std::size_t kMostText = 120;
  std::int64_t elements = tensors.front().numel();
  std::string text = ", then ";
  bool all = true;
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    elements += tensors[i].numel();
    all = all && text.size() < kMostText;
    if (all) text += concat(i == 1 ? "" : ", ", tensors[i].numel(), " ", nameOf(tensors[i].scalar_type()));
  }
  return text + concat(all ? "" : " and so on", ": ", elements, " elements in all");
}

// Rows are identified by their places in it, so the same number of elements is not enough.
std::string shapeOf(const at::Tensor& sparse) {
  std::string text = " as";
  for (const std::int64_t size : sparse.sizes()) text += concat(text == " as" ? " " : " x ", size);
  return text + concat(", ", sparse.sparse_dim(), " sparse");
}

std::string textOf(const Operation& operation, const Common& common) {
  std::string text;
  text.reserve(64);  // enough for most: one allocation
  const auto add = [&text](const auto&... parts) { (appendTo(text, parts), ...); };
  add(operation.verb);
  if (common.siteFormat != nullptr) add(" as ", common.siteFormat->name, " between sites");
  if (common.reduction) add(" ", name(*common.reduction));
  if (!common.tensors.empty()) {
    const at::Tensor& first = common.tensors.front();
    add(" of ");
    if (!common.dtypesOnly) {
      if (common.tensors.size() > 1) add(common.tensors.size(), " tensors, the first of ");
      add(first.numel(), " ");
    }
    add(nameOf(first.scalar_type()));
    if (!common.dtypesOnly && !areAlike(common.tensors)) add(othersOf(common.tensors));
    if (first.layout() == at::kSparse && !common.dtypesOnly) add(shapeOf(first));
    if (common.onDevice) add(" on CUDA");
  }
  if (common.root) add(", root ", *common.root);
  return text;
}

// FNV-1a: the same on all ranks, with any compiler.
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
  if (common.siteFormat != nullptr) digest.add(common.siteFormat->name);
  digest.add(common.reduction ? std::uint64_t{static_cast<unsigned>(*common.reduction)} + 1 : 0U);
  digest.add(common.root ? static_cast<std::uint64_t>(*common.root) + 1 : 0U);
  digest.add(std::uint64_t{common.onDevice});
  for (const at::Tensor& tensor : common.tensors) {
    digest.add(static_cast<std::uint64_t>(tensor.scalar_type()));
    if (common.dtypesOnly) break;  // their number may differ as well
    digest.add(static_cast<std::uint64_t>(tensor.numel()));
    if (tensor.layout() == at::kSparse) digest.add(shapeOf(tensor));
  }
  return digest.value();
}

}  // namespace

// The digest covers all that the text says. The calls of a training have few texts, which the log of calls and the
// records share.
Signature signatureOf(const Operation& operation, const Common& common) {
  constexpr std::size_t kMostTexts = 1024;
  thread_local std::unordered_map<std::uint64_t, Text> texts;
  const std::uint64_t digest = digestOf(operation, common);
  const auto known = texts.find(digest);
  if (known != texts.end()) return {known->second, digest};
  if (texts.size() == kMostTexts) texts.clear();
  return {texts[digest] = textOf(operation, common), digest};
}

}  // namespace fairring
