// An all-reduce of a sparse tensor as its user holds it. The engine reduces this rank's rows into memory that is made
// once the number of rows is known; on the completion thread these become the tensor's, before any waiter is woken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/sparse_tensor.h"
#include "backend/work.h"

namespace fairring {

class SparseWork : public FairringWork {
 public:
  // rows: this rank's; none if it can't take part.
  SparseWork(WorkLabel label, const Operation& operation, const at::Tensor& tensor, LocalRows rows,
             std::weak_ptr<Runtime> runtime);

  const LocalRows& rows() const { return rows_; }
  // On the loop, once: memory for the sums of these rows.
  std::byte* makeResult(const std::vector<std::uint64_t>& keys);
  void takeOwnRows();  // a group of one rank: its rows are the sum

 protected:
  const at::Tensor& tensor() const { return tensor_; }
  void writeBack() override;

 private:
  bool needsCopyBack() const override { return sums_.defined(); }

  const at::Tensor tensor_;
  const LocalRows rows_;
  at::Tensor indices_;
  at::Tensor sums_;
};

}  // namespace fairring
