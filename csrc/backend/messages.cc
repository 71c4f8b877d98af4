// FairringBackend's messages between two ranks: bytes are sent and received in place if the tensors' memory is plain
// and the host's; others are copied. Calls wait for copies from a device, so that messages keep the calls' order.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/gil.h"
#include "backend/message_work.h"
#include "backend/tensor_checks.h"

namespace fairring {
namespace {

namespace op = operation;
using Tensors = Fallback::Tensors;

constexpr std::uint16_t kUsersContext = 0;
constexpr int kAnyRank = -1;

void requireMessage(const Delegation& delegation, const Operation& operation, const Tensors& tensors) {
  requireCount(operation.verb, "tensor", tensors.size(), 1);
  delegation.requireDense(operation.verb, tensors);
}

void requirePeer(const Operation& operation, int rank, int size, int peer) {
  TORCH_CHECK_WITH(ValueError, peer >= 0 && peer < size && peer != rank, operation.verb, " between rank ", rank,
                   " and rank ", peer, ": the other one must be another of the group's ", size, " ranks");
}

using WorkRef = c10::intrusive_ptr<MessageWork>;

// The engine has the bytes for as long as it has the work.
Sending sendingOf(const WorkRef& work, int to, const Label& label, Completion& completion) {
  const at::Tensor& bytes = work->sent();
  return {.to = to,
          .label = label,
          .data = static_cast<const std::byte*>(bytes.const_data_ptr()),
          .bytes = bytes.nbytes(),
          .done = [work = WorkRef(work), &completion](
                      const Error& error) mutable { MessageWork::onDone(std::move(work), error, -1, completion); },
          .waiters = work->waiters()};
}

Receiving receivingOf(const WorkRef& work, int from, const Label& label, Completion& completion) {
  const at::Tensor& bytes = work->received();
  return {.from = from == kAnyRank ? std::nullopt : std::optional(from),
          .label = label,
          .data = static_cast<std::byte*>(bytes.data_ptr()),
          .bytes = bytes.nbytes(),
          .done = [work = WorkRef(work), &completion](
                      const Error& error,
                      int source) mutable { MessageWork::onDone(std::move(work), error, source, completion); },
          .waiters = work->waiters()};
}

}  // namespace

Fallback::WorkPtr FairringBackend::send(Tensors& tensors, int destination, int tag) {
  if (tensors.empty() || !delegation().serves(tensors))
    return delegate<&Backend::send>(op::kSend, tensors, tensors, destination, tag);
  requireMessage(delegation(), op::kSend, tensors);
  requirePeer(op::kSend, getRank(), getSize(), destination);
  MessageCall call{op::kSend, destination, tag, tensors.front(), {}};
  call.memory.read(tensors.front());
  return runMessage(std::move(call));
}

Fallback::WorkPtr FairringBackend::recv(Tensors& tensors, int source, int tag) {
  if (tensors.empty() || !delegation().serves(tensors))
    return delegate<&Backend::recv>(op::kReceive, tensors, tensors, source, tag);
  requireMessage(delegation(), op::kReceive, tensors);
  requirePeer(op::kReceive, getRank(), getSize(), source);
  MessageCall call{op::kReceive, source, tag, tensors.front(), {}};
  // A message may be shorter: the rest of the tensor stays.
  call.memory.change(tensors.front());
  return runMessage(std::move(call));
}

Fallback::WorkPtr FairringBackend::recvAnysource(Tensors& tensors, int tag) {
  if (tensors.empty() || !delegation().serves(tensors))
    return delegate<&Backend::recvAnysource>(op::kReceiveAnySource, tensors, tensors, tag);
  requireMessage(delegation(), op::kReceiveAnySource, tensors);
  TORCH_CHECK_WITH(ValueError, getSize() > 1, op::kReceiveAnySource.verb, ": the group has no other rank");
  MessageCall call{op::kReceiveAnySource, kAnyRank, tag, tensors.front(), {}};
  call.memory.change(tensors.front());
  return runMessage(std::move(call));
}

Fallback::WorkPtr FairringBackend::runMessage(MessageCall call) {
  const GilReleased withoutLock;
  call.memory.copies.await();
  refuseUnlessUsable();
  const std::shared_ptr<Membership> membership = this->membership();
  TORCH_CHECK_WITH(DistBackendError, membership, "this process group has ended");
  const bool isSent = call.operation.type == op::kSend.type;
  Signature signature = signatureOf(call.operation, {.tensors = {call.tensor}});
  const std::optional<int> peer = call.peer == kAnyRank ? std::nullopt : std::optional(call.peer);
  if (peer) signature.text = concat(signature.text, isSent ? " to rank " : " from rank ", call.peer);
  const auto expire = [weak = std::weak_ptr(membership), late = TimedCall{0, signature.text, timeout()},
                       peer](std::function<bool()> isUnderWay) {
    const auto there = weak.lock();
    if (const auto group = there ? there->groupIfMade() : nullptr) group->expire(late, peer, std::move(isUnderWay));
  };
  const auto work =
      c10::make_intrusive<MessageWork>(labelOf(signature), call.operation, std::move(call.memory), call.tensor,
                                       membership->runtime(), MessageWork::Patience{timeout(), expire});
  const Label label{kUsersContext, static_cast<std::uint32_t>(call.tag)};
  withTorchsErrors([&] {
    Group& group = membership->group(timeout());
    if (isSent) {
      group.send(sendingOf(work, call.peer, label, membership->completion()));
    } else {
      group.receive(receivingOf(work, call.peer, label, membership->completion()));
    }
  });
  membership->completion().letGo();
  coalescing().add(WorkPtr(work));
  return work;
}

}  // namespace fairring
