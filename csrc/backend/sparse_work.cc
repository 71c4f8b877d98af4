#include "backend/sparse_work.h"

#include <utility>

namespace fairring {

SparseWork::SparseWork(WorkLabel label, const Operation& operation, const at::Tensor& tensor, LocalRows rows,
                       std::weak_ptr<Runtime> runtime)
    : FairringWork(std::move(label), operation, {&tensor, 1}, {}, {{tensor}}, std::move(runtime)),
      tensor_(tensor),
      rows_(std::move(rows)) {
  keepCallersState();
}

std::byte* SparseWork::makeResult(const std::vector<std::uint64_t>& keys) {
  const at::ThreadLocalStateGuard asCaller(callersState());
  indices_ = indicesOf(tensor_, keys);
  sums_ = newRows(tensor_, keys.size());
  return static_cast<std::byte*>(sums_.mutable_data_ptr());
}

void SparseWork::takeOwnRows() {
  indices_ = indicesOf(tensor_, rows_.keys);
  sums_ = rows_.values;
}

void SparseWork::writeBack() { replaceRows(tensor_, indices_, sums_); }

}  // namespace fairring
