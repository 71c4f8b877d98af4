#include "exchange/slice.h"

#include "exchange/dense_body.h"

namespace fairring {

std::shared_ptr<const SliceBody> denseBody() {
  static const auto body = std::make_shared<const DenseBody>();
  return body;
}

std::byte* Slice::areasOf(std::size_t step) const {
  return (isInTensor() ? unusedImage : image) + receiveOffset(*plan, *layout, step);
}

Reduction Slice::reductionOf(const Portion& portion, std::size_t step) const {
  const auto isReducing = [this](std::size_t i) { return reduces((*plan)[i].verb); };
  Reduction result = portion.reduction;
  for (std::size_t i = step + 1; i < plan->size(); ++i) {
    if (isReducing(i)) result.divisor = 1;
  }
  return result;
}

}  // namespace fairring
