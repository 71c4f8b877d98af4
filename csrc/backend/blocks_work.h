// A call that has blocks, as the user holds it: work.h, with the memory of its blocks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/raw_bytes.h"
#include "backend/work.h"

namespace fairring {

// The memory that the engine reads and writes until the call is done: the user's tensors, or plain copies of them.
struct BlocksMemory {
  std::vector<at::Tensor> inputs;
  std::vector<Inbox> outputs;
  HostCopies copies;  // of the inputs: they are read once these are there

  // The addresses from which its elements are read, or to which they are written before Inbox::deliver(). Each throws
  // c10::Error if the tensor's memory can't be used.
  const std::byte* read(const at::Tensor& tensor);
  std::byte* write(const at::Tensor& tensor);
};

class BlocksWork : public FairringWork {
 public:
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // outputs: the content of the future, as in c10d: one list, or one for each rank.
  BlocksWork(WorkLabel label, const Operation& operation, std::span<const at::Tensor> inputs, BlocksMemory memory,
             TensorLists outputs, std::weak_ptr<Runtime> runtime);

  std::vector<at::Tensor> result() override;

 protected:
  const BlocksMemory& memory() const { return memory_; }
  bool needsCopyBack() const override;
  void writeBack() override;
  std::vector<c10::Device> devices() const override;

 private:
  c10::IValue value() override { return value_; }
  c10::TypePtr valueType() const override { return value_.type(); }

  const BlocksMemory memory_;
  const TensorLists outputs_;
  const c10::IValue value_;
};

}  // namespace fairring
