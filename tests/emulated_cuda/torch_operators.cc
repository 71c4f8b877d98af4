#include "torch_operators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "emulated.h"
#include "memory.h"
#include "torch_values.h"

namespace emulated {
namespace {

using torch::jit::Stack;

Stack cpuArguments(const Stack& arguments) {
  Stack mappedOnes;
  for (const auto& argument : arguments) mappedOnes.push_back(mapped(argument, at::kCPU, onCpu));
  return mappedOnes;
}

void poison(const c10::IValue& value) {
  forEachTensor(value, [](const at::Tensor& tensor) {
    if (tensor.numel() > 0 && tensor.is_non_overlapping_and_dense())
      std::memset(tensor.data_ptr(), kPoison, tensor.nbytes());
  });
}

void copyResult(const c10::IValue& to, const c10::IValue& from) {
  if (to.isTensor()) copyValues(to.toTensor(), from.toTensor());
  if (!to.isTensorList()) return;
  const auto targets = to.toTensorVector();
  const auto sources = from.toTensorVector();
  for (std::size_t i = 0; i < targets.size(); ++i) copyValues(targets[i], sources[i]);
}

// A new result on the device, with what the CPU's holds.
at::Tensor toDevice(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined()) return tensor;
  at::Tensor made = emptyLike(tensor, device);
  if (tensor.is_sparse()) {
    copyValues(onCpu(made._indices()), tensor._indices());
    copyValues(onCpu(made._values()), tensor._values());
  } else {
    copyValues(onCpu(made), tensor);
  }
  return made;
}

// results: on the CPU; none where a result is an argument.
void compute(const c10::OperatorHandle& operation, Stack stack, const std::vector<c10::IValue>& results) {
  const at::AutoDispatchBelowADInplaceOrView below;
  try {
    for (const auto& result : results) poison(result);
    pauseOfSeed();
    operation.callBoxed(stack);
    for (std::size_t i = 0; i < results.size(); ++i) copyResult(results[i], stack[i]);
  } catch (const std::exception& error) {
    fatal("torch's %s on the processor: %s", operation.schema().name().c_str(), error.what());
  }
}

bool isGenerator(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  return (optional ? optional->getElementType() : argument.type())->kind() == c10::TypeKind::GeneratorType;
}

// Of the CPU, for one operator: its seed follows from the device's generator, which goes on.
at::Generator nextOf(at::Generator generator) {
  constexpr std::uint64_t kStep = 4;  // of offsets that a device's generator takes
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;
  const std::lock_guard lock(generator.mutex());
  const std::uint64_t offset = generator.get_offset();
  generator.set_offset(offset + kStep);
  return at::detail::createCPUGenerator(generator.current_seed() + kSpread * offset);
}

bool isListOrTensor(const c10::Argument& result) {
  return result.type()->kind() == c10::TypeKind::TensorType || result.type()->kind() == c10::TypeKind::ListType;
}

}  // namespace

OperatorCall::OperatorCall(const c10::OperatorHandle& operation, Stack* stack) : operation_(operation), stack_(stack) {
  const std::size_t count = operation.schema().arguments().size();
  arguments_.assign(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  findDevice();
  findAliases();
  takeNumbers();
}

// Random numbers are those of the call's turn on the caller's thread, however late it is computed.
void OperatorCall::takeNumbers() {
  const auto& arguments = operation_.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!isGenerator(arguments[i])) continue;
    const bool isCaptured = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    arguments_[i] = isCaptured                    ? c10::IValue()
                    : arguments_[i].isGenerator() ? nextOf(arguments_[i].toGenerator())
                                                  : nextOf(at::globalContext().defaultGenerator(device_));
  }
}

void OperatorCall::findDevice() {
  std::optional<at::Device> found;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const bool isOut = operation_.schema().arguments()[i].is_out();
    forEachTensor(arguments_[i], [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && !found) found = tensor.device();
      isSparse_ = isSparse_ || tensor.is_sparse();
      outIsEmpty_ = outIsEmpty_ || (isOut && !tensor.is_sparse() && tensor.numel() == 0);
    });
  }
  for (const auto& argument : arguments_) {
    if (!found && argument.isDevice() && argument.toDevice().is_cuda()) found = argument.toDevice();
  }
  device_ = found && found->has_index() ? *found : at::Device(at::kCUDA, c10::cuda::current_device());
}

void OperatorCall::findAliases() {
  const auto& schema = operation_.schema();
  for (const auto& result : schema.returns()) {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < arguments_.size() && result.alias_info() != nullptr; ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite() && *alias == *result.alias_info()) found = i;
    }
    aliases_.push_back(found);
  }
  results_.resize(aliases_.size());
}

bool OperatorCall::mayBeDeferred() const {
  const auto& schema = operation_.schema();
  for (std::size_t i = 0; i < aliases_.size(); ++i) {
    if (!aliases_[i] && !isListOrTensor(schema.returns()[i])) return false;
  }
  // A device's kernel of embedding bags gives results of other shapes than the CPU's.
  return !isSparse_ && !outIsEmpty_ && !schema.name().starts_with("aten::_embedding_bag");
}

// False where shapes follow from values.
bool OperatorCall::makeResults() {
  if (std::ranges::all_of(aliases_, [](const auto& alias) { return alias.has_value(); })) return true;
  try {
    Stack meta;
    meta.reserve(arguments_.size());
    for (const auto& argument : arguments_) meta.push_back(mapped(argument, at::kMeta, onMeta));
    operation_.callBoxed(meta);
    for (std::size_t i = 0; i < aliases_.size(); ++i) {
      if (aliases_[i]) continue;
      results_[i] = mapped(meta[i], device_, [this](const at::Tensor& tensor) { return emptyLike(tensor, device_); });
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void OperatorCall::defer() {
  std::vector<c10::IValue> results;
  results.reserve(results_.size());
  for (const auto& result : results_) results.push_back(mapped(result, at::kCPU, onCpu));
  enqueue(c10::cuda::getCurrentCUDAStream(device_.index()).stream(), operation_.schema().name(),
          [operation = operation_, arguments = cpuArguments(arguments_), results = std::move(results)] {
            compute(operation, arguments, results);
          });
}

// A device rounds the sum of a row's entries once, the CPU's kernel after each.
bool OperatorCall::sumsInFp32() const {
  return operation_.schema().name() == "aten::_coalesce" &&
         c10::isReducedFloatingType(arguments_[0].toTensor().scalar_type());
}

void OperatorCall::computeNow() {
  cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(device_.index()).stream());
  std::vector<std::pair<at::Tensor, at::Tensor>> grown;  // what is to be written had no elements yet
  Stack stack;
  stack.reserve(arguments_.size());
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const bool isOut = operation_.schema().arguments()[i].is_out();
    stack.push_back(mapped(arguments_[i], at::kCPU, [&](const at::Tensor& tensor) {
      if (!isOut || !tensor.defined() || tensor.numel() > 0) return onCpu(tensor);
      grown.emplace_back(tensor, at::empty({0}, tensor.options().device(at::kCPU)));
      return grown.back().second;
    }));
  }
  if (sumsInFp32()) stack[0] = stack[0].toTensor().to(at::kFloat);
  operation_.callBoxed(stack);
  if (sumsInFp32()) stack[0] = stack[0].toTensor().to(arguments_[0].toTensor().scalar_type());
  for (auto& [tensor, result] : grown) {
    tensor.resize_(result.sizes());
    copyValues(onCpu(tensor), result);
  }
  for (std::size_t i = 0; i < aliases_.size(); ++i) {
    if (aliases_[i]) continue;
    results_[i] = mapped(stack[i], device_, [this](const at::Tensor& tensor) { return toDevice(tensor, device_); });
  }
}

void OperatorCall::finish() {
  for (std::size_t i = 0; i < aliases_.size(); ++i) {
    const auto& alias = aliases_[i];
    stack_->push_back(alias ? arguments_[*alias] : std::move(results_[i]));
  }
}

void OperatorCall::run() {
  const c10::cuda::CUDAGuard guard(device_);
  const at::AutoDispatchBelowADInplaceOrView below;
  if (mayBeDeferred() && makeResults()) {
    defer();
  } else {
    computeNow();
  }
  finish();
}

}  // namespace emulated
