// The beginning of FairringBackend's calls on tensors of the host, or on copies there: each becomes one call of the
// engine's. reducing.cc, blocks.cc, rooted.cc and all_to_all.cc say which memory it reads and writes.
#include <cstring>
#include <utility>

#include "backend/fairring_backend.h"
#include "backend/gil.h"

namespace fairring {

Contribution FairringBackend::contributionTo(const Operation& operation, const c10d::ReduceOp& op,
                                             const at::Tensor& tensor) const {
  return withTorchsErrors([&] { return contributionOf(operation.verb, op, tensor.scalar_type(), getSize()); });
}

void FairringBackend::readFrom(HostCall& call, std::size_t index, const at::Tensor& input) const {
  call.blocks[static_cast<std::size_t>(getRank())][index].from = call.memory.read(input);
}

// If a tensor's memory can't be used, the call is made all the same, with arbitrary bytes of staging in its place: so
// the peers learn of it, and other tensors and calls go on.
void FairringBackend::orRefused(HostCall& call, std::size_t index, const std::function<void()>& takeMemory) const {
  if (call.refused && !call.cells.empty()) return;
  const std::size_t before = call.memory.outputs.size();
  try {
    takeMemory();
  } catch (const c10::Error& error) {
    if (getSize() == 1) throw;
    const std::size_t tensors =
        call.operands.size() + call.cells.size() + (call.blocks.empty() ? 0 : call.blocks.front().size());
    call.refused = makeError(ErrorKind::Refused, "rank ", getRank(), " refused tensor ", index, " of ", tensors, " in ",
                             call.operation.verb, ": ", error.what_without_backtrace())
                       .about({getRank()});
    // Nothing will be written there, nor is it to be delivered.
    std::vector<Inbox>& outputs = call.memory.outputs;
    outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(call.cells.empty() ? before : 0), outputs.end());
    for (std::vector<Block>& blocks : call.blocks) {
      blocks[index].from = nullptr;
      blocks[index].to = nullptr;
    }
    for (CellPair& pair : call.cells) {
      pair.from = nullptr;
      pair.to = nullptr;
    }
  }
}

// A group of one rank: this rank's contribution is the result.
void FairringBackend::moveAlone(const HostCall& call) {
  const auto scaleFor = [&call](const Reduction& reduction) { return isFloat(reduction.dtype) ? call.scale : 1.0; };
  for (const auto& [data, elements, reduction] : call.operands)
    contributeAlone(data, elements, {reduction, scaleFor(reduction)});
  for (const CellPair& pair : call.cells) std::memcpy(pair.to, pair.from, pair.fromBytes);
  if (call.blocks.empty()) return;
  for (const Block& block : call.blocks.front()) {
    if (block.to == nullptr) continue;  // a broadcast
    const Input input{block.from, scaleFor(block.reduction)};
    fairring::reduce(block.reduction, block.to, {&input, 1}, block.elements);
  }
}

Fallback::WorkPtr FairringBackend::runOnHost(HostCall call) {
  // A barrier has an operand, and no tensor of the user's.
  TORCH_CHECK_WITH(ValueError, !call.common.tensors.empty() || !call.operands.empty(), "rank ", getRank(), ": ",
                   call.operation.verb, " without tensors");
  const GilReleased withoutLock;
  refuseUnlessUsable();
  const Signature signature = signatureOf(call.operation, call.common);
  countCall();
  const std::shared_ptr<Membership> membership = this->membership();
  const std::weak_ptr<Runtime> runtime = membership ? membership->runtime() : std::weak_ptr<Runtime>();
  HostCopies copies = std::exchange(call.memory.copies, {});
  const auto work = c10::make_intrusive<FairringWork>(labelOf(signature), call.operation, call.read,
                                                      std::move(call.memory), std::move(call.outputs), runtime);
  if (!membership) {
    copies.await();
    moveAlone(call);
    if (call.done) call.done(Error());
    work->completeAlone();
    coalescing().add(WorkPtr(work));
    return work;
  }
  if (!call.cells.empty()) call.parts = std::make_shared<AllToAllCall>(std::move(call.cells), getRank());
  call.inputs = copies.leaveTo(membership->copyWaiters(), call.waited);
  call.siteFormat = call.common.siteFormat;
  call.signature = signature;
  return submit(*membership, work, static_cast<Call&&>(call), call.waited);
}

Fallback::WorkPtr FairringBackend::submit(Membership& membership, const WorkRef& work, Call call, bool waited) {
  withTorchsErrors([&] {
    Group& group = membership.group(call.timeout);
    call.done = [work = WorkRef(work), &completion = membership.completion(),
                 first = std::move(call.done)](const Error& error) mutable {
      if (first) first(error);
      FairringWork::onDone(std::move(work), error, completion);
    };
    group.submit(std::move(call), waited);
  });
  membership.completion().letGo();
  coalescing().add(WorkPtr(work));
  return work;
}

}  // namespace fairring
