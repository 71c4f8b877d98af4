// FairringBackend's all-reduces of sparse tensors: this rank's rows, each once and in order, go to the engine with
// their keys. Sparse tensors of a device travel as the host's do (sparse_on_device.h), under any setting of
// FAIRRING_CUDA: NCCL has no sparse all-reduce to use instead.

#include <chrono>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/fairring_backend.h"
#include "backend/gil.h"
#include "backend/sparse_on_device.h"
#include "backend/sparse_tensor.h"
#include "backend/sparse_work.h"
#include "backend/through_host.h"
#include "engine/sparse_call.h"

namespace fairring {
namespace {

namespace op = operation;

Contribution contributionOfRows(const c10d::ReduceOp& reduction, const at::Tensor& tensor, int ranks) {
  return withTorchsErrors([&] {
    const Contribution contribution = contributionOf(op::kAllReduceSparse.verb, reduction, tensor.scalar_type(), ranks);
    check(
        contribution.reduction.op == Op::Sum, ErrorKind::Usage, op::kAllReduceSparse.verb, " with ",
        name(reduction.op_),
        " is not defined: ranks have different rows, and what one lacks counts as zeros: take SUM or AVG, or make the "
        "tensor dense");
    return contribution;
  });
}

// The number of rows is not known before the graph runs.
void refuseCapture(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  const c10::Stream callers = callersStream(tensor.device());
  TORCH_CHECK_WITH(ValueError, !isCapturing(callers), op::kAllReduceSparse.verb,
                   " can't be captured in a CUDA graph: ranks exchange how many rows they have while the host waits; "
                   "make the call outside of the capture, or make the tensor dense");
}

at::Tensor rowsOnHost(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor : mergedOnHost(tensor, CopyStreams::of(tensor.device()).in);
}

c10::intrusive_ptr<SparseWork> workOf(WorkLabel label, const at::Tensor& tensor, LocalRows rows,
                                      std::weak_ptr<Runtime> runtime) {
  if (tensor.is_cpu()) {
    return c10::make_intrusive<SparseWork>(std::move(label), op::kAllReduceSparse, tensor, std::move(rows),
                                           std::move(runtime));
  }
  return c10::make_intrusive<SparseDeviceWork>(std::move(label), op::kAllReduceSparse, tensor, std::move(rows),
                                               std::move(runtime), CopyStreams::of(tensor.device()).out);
}

}  // namespace

// A rank whose rows are invalid reports it to the others, as with any tensor.
Fallback::WorkPtr FairringBackend::allReduceSparse(const at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  const GilReleased withoutLock;
  refuseUnlessUsable();
  refuseCapture(tensor);
  const Contribution contribution = contributionOfRows(options.reduceOp, tensor, getSize());
  const std::shared_ptr<Membership> membership = this->membership();
  SparseOperand operand;
  operand.keysBelow = possibleRows(tensor);
  operand.rowElements = rowElements(tensor);
  operand.reduction = contribution.reduction;
  LocalRows rows;
  Error refused;
  try {
    rows = LocalRows::of(rowsOnHost(tensor), contribution.reduction);
  } catch (const c10::Error& error) {
    if (!membership) throw;
    refused = makeError(ErrorKind::Refused, "rank ", getRank(), " refused its tensor in ", op::kAllReduceSparse.verb,
                        ": ", error.what_without_backtrace())
                  .about({getRank()});
  }
  const Signature signature =
      signatureOf(op::kAllReduceSparse, {.tensors = {tensor}, .reduction = options.reduceOp.op_});
  countCall();
  const std::weak_ptr<Runtime> runtime = membership ? membership->runtime() : std::weak_ptr<Runtime>();
  const auto work = workOf(labelOf(signature), tensor, std::move(rows), runtime);
  if (!membership) {
    const at::Tensor& values = work->rows().values;
    contributeAlone(values.data_ptr(), ownElements(values), contribution);
    work->takeOwnRows();
    work->completeAlone();
    coalescing().add(WorkPtr(work));
    return work;
  }
  operand.keys = work->rows().keys;  // kept alive by `done`, as are the values
  if (!operand.keys.empty()) operand.values = static_cast<const std::byte*>(work->rows().values.const_data_ptr());
  if (!refused) operand.result = [own = work.get()](const auto& keys) { return own->makeResult(keys); };
  return submit(*membership, work,
                {.operands = {},
                 .parts = std::make_shared<SparseCall>(std::move(operand), getRank(), getSize()),
                 .scale = contribution.scale,
                 .timeout = limitOf(options.timeout),
                 .signature = signature,
                 .refused = refused,
                 .done = nullptr},
                !options.asyncOp);
}

}  // namespace fairring
