#include "backend/raw_bytes.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

namespace fairring {
namespace {

// Whether its memory holds its elements and nothing else, in order.
bool isPlain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

bool isOneRow(const std::vector<at::Tensor>& tensors) { return tensors.size() == 1 && isPlain(tensors.front()); }

// Works for any strides of a dimension with one element or none: a contiguous tensor may have arbitrary ones there.
at::Tensor asBytes(const at::Tensor& contiguous) {
  return contiguous.as_strided({contiguous.numel()}, {1}).view(at::kByte);
}

}  // namespace

std::int64_t byteCount(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += static_cast<std::int64_t>(tensor.nbytes());
  return count;
}

at::Tensor bytesOf(const std::vector<at::Tensor>& tensors, HostCopies& copies) {
  const at::AutoDispatchBelowAutograd noGradient;
  if (isOneRow(tensors)) return copies.of(asBytes(tensors.front()));
  std::vector<at::Tensor> rows;
  rows.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) rows.push_back(asBytes(tensor.resolve_conj().resolve_neg().contiguous()));
  return copies.of(rows.size() == 1 ? rows.front() : at::cat(rows));
}

Inbox::Inbox(std::vector<at::Tensor> tensors, Rest rest) : tensors_(std::move(tensors)) {
  const at::AutoDispatchBelowAutograd noGradient;
  for (const at::Tensor& tensor : tensors_) at::assert_no_internal_overlap(tensor);
  const at::Tensor& first = tensors_.front();
  back_ = WayBack::of(first);
  if (!back_ && isOneRow(tensors_)) {
    bytes_ = asBytes(first);
    tensors_.clear();
  } else if (rest == Rest::Stays) {
    HostCopies copies;
    bytes_ = bytesOf(tensors_, copies);
    copies.await();
  } else {
    bytes_ = hostMemory({byteCount(tensors_)}, at::kByte, first.device().type());
  }
}

void Inbox::deliver() const {
  if (!back_) return copy();
  back_->copy([this] { copy(); });
}

void Inbox::copy() const {
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    const Writing writing(tensor);
    const auto count = static_cast<std::int64_t>(tensor.nbytes());
    // A separate row is used if necessary: in the bytes, elements may lie at any address.
    const at::Tensor row = isPlain(tensor) ? tensor : at::empty(tensor.sizes(), tensor.options());
    asBytes(row).copy_(bytes_.narrow(0, at, count), /*non_blocking=*/true);
    if (!row.is_same(tensor)) tensor.copy_(row);
    at += count;
  }
}

}  // namespace fairring
