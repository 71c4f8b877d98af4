#include "backend/blocks_work.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace fairring {

const std::byte* BlocksMemory::read(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(inputs.emplace_back(bytesOf({tensor}, copies)).const_data_ptr());
}

std::byte* BlocksMemory::write(const at::Tensor& tensor) {
  return static_cast<std::byte*>(outputs.emplace_back(std::vector{tensor}).bytes().data_ptr());
}

BlocksWork::BlocksWork(WorkLabel label, const Operation& operation, std::span<const at::Tensor> inputs,
                       BlocksMemory memory, TensorLists outputs, std::weak_ptr<Runtime> runtime)
    : FairringWork(std::move(label), operation, inputs, {}, {}, std::move(runtime)),
      memory_(std::move(memory)),
      outputs_(std::move(outputs)),
      value_(outputs_.size() == 1 ? c10::IValue(outputs_.front()) : c10::IValue(outputs_)) {
  if (BlocksWork::needsCopyBack()) keepCallersState();
}

bool BlocksWork::needsCopyBack() const { return !std::ranges::all_of(memory_.outputs, &Inbox::isDirect); }

void BlocksWork::writeBack() {
  for (const Inbox& output : memory_.outputs) output.deliver();
}

std::vector<c10::Device> BlocksWork::devices() const {
  std::vector<at::Tensor> all;
  for (const auto& list : outputs_) all.insert(all.end(), list.begin(), list.end());
  return devicesOf(all);
}

std::vector<at::Tensor> BlocksWork::result() {
  TORCH_CHECK(outputs_.size() <= 1, "this Work has a list of tensors for each rank: take get_future().value()");
  return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
}

}  // namespace fairring
