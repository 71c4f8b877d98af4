// Fallback's way with a call: numbered, entered with the engine, handed to the stock backend, followed to its end.
#include <exception>
#include <utility>

#include "backend/complete_gloo.h"
#include "backend/fallback.h"
#include "backend/gil.h"

namespace fairring {

Fallback::Delegated Fallback::collective(const Operation& operation, const Common& common,
                                         std::chrono::milliseconds timeout) const {
  TORCH_CHECK_WITH(ValueError, !common.tensors.empty(), "rank ", getRank(), ": ", operation.verb, " without tensors");
  return {operation, signatureOf(operation, common), limitOf(timeout), common.tensors.front().device().type()};
}

// No timeout of the engine's: a receive may stand ready for as long as it likes before it is waited for.
Fallback::Delegated Fallback::pointToPoint(const Operation& operation, const Tensors& tensors,
                                           std::optional<int> peer) const {
  TORCH_CHECK_WITH(ValueError, !tensors.empty(), "rank ", getRank(), ": ", operation.verb, " without tensors");
  Signature signature = signatureOf(operation, {.tensors = tensors});
  if (peer) signature.text = concat(signature.text, ", rank ", getRank(), " and rank ", *peer);
  return {operation, std::move(signature), std::chrono::milliseconds(0), tensors.front().device().type(), false};
}

std::chrono::milliseconds Fallback::limitOf(std::chrono::milliseconds callsOwn) const {
  return callsOwn == c10d::kUnsetTimeout ? timeout() : callsOwn;
}

WorkLabel Fallback::labelOf(const Signature& signature) const {
  return {getRank(), calls_.load(), signature.text, parts_.hooks};
}

Fallback::BackendPtr Fallback::stock(c10::DeviceType device) {
  return parts_.stocks->get(
      device, [this] { return meet(); },
      [this](c10d::Backend& backend) {
        backend.setGroupUid(getGroupUid());
        backend.setGroupDesc(getGroupDesc());
        if (getBoundDeviceId()) backend.setBoundDeviceId(getBoundDeviceId());
#ifdef C10D_BACKEND_HAS_HOOKS
        // Its Works for CUDA tensors go to the user as they are.
        if (!backend.supportsCompletionHooks()) return;
        backend.registerCompletionHook(
            0, [hooks = parts_.hooks](const CompletionHookArgs& args) { hooks->completed(args.completionKey); });
#endif
      });
}

DelegatedWork::Ref Fallback::enter(Delegated& call, const Tensors& inputs) {
  if (const Error error = parts_.link->error()) std::rethrow_exception(toException(error));
  if (call.compared) openEngine(call.timeout);  // all ranks make this call; of the others only two, if any
  auto work = c10::make_intrusive<DelegatedWork>(labelOf(call.signature), call.operation, inputs, parts_.link);
  DelegatedWork::enter(work, {std::move(call.signature), call.compared, call.timeout, nullptr});
  return work;
}

Fallback::WorkPtr Fallback::delegate(Delegated call, const Tensors& inputs, const Begin& begin) {
  const GilReleased withoutLock;
  refuseIfEnded();
  if (call.compared) countCall();
  if (call.device != at::kCPU) {
    const BackendPtr there = stock(call.device);
    coalescing_.add(there);
    return begin(*there);
  }
  const DelegatedWork::Ref work = enter(call, inputs);
  try {
    DelegatedWork::follow(work, begin(*c10::make_intrusive<CompleteGloo>(stock(at::kCPU))));
  } catch (...) {
    DelegatedWork::refused(work, std::current_exception());
  }
  coalescing_.add(WorkPtr(work));
  return work;
}

}  // namespace fairring
