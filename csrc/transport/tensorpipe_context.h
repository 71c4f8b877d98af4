// The TensorPipe context of one group, and the one way from its threads to the loop: onLoop. These threads only post;
// they touch and destroy nothing of ours. For tensorpipe*.cc only: this header shows TensorPipe.
// On the loop only, except for the constructor.
#pragma once

#include <tensorpipe/tensorpipe.h>

#include <memory>
#include <string>

#include "base/loop.h"

namespace fairring {

using TensorPipe = std::shared_ptr<tensorpipe::Pipe>;

class TensorPipeContext {
 public:
  TensorPipeContext(Loop& loop, const std::string& transport);  // throws Failure(Configuration)
  TensorPipeContext(const TensorPipeContext&) = delete;
  TensorPipeContext& operator=(const TensorPipeContext&) = delete;
  ~TensorPipeContext() { close(); }

  Loop& loop() const { return loop_; }
  const std::string& domain() const { return transport_->domainDescriptor(); }
  bool reaches(const std::string& domain) const { return transport_->canCommunicateWithRemote(domain); }
  std::shared_ptr<tensorpipe::Listener> listen(const std::string& bindAddress);
  std::string urlOf(const tensorpipe::Listener& listener) const { return listener.url(name_); }
  TensorPipe connect(const std::string& url) { return context_.connect(url); }

  // Ends all channels and waits until TensorPipe's threads have released all memory. Quick: they wait for nothing.
  void close();

  // False once closed. A callback keeps a copy, which outlives this object.
  std::shared_ptr<const bool> isOpen() const { return open_; }

  // A TensorPipe callback that runs `then` on the loop, unless the context is closed by that time.
  template <class Then>
  auto onLoop(const Then& then) const {
    return [&loop = loop_, open = isOpen(), then](const tensorpipe::Error& error, const auto&... result) {
      loop.post([open, then, error, result...] {
        if (*open) then(error, result...);
      });
    };
  }

 private:
  Loop& loop_;
  const std::string name_;
  const std::shared_ptr<bool> open_ = std::make_shared<bool>(true);
  const std::shared_ptr<tensorpipe::transport::Context> transport_;
  tensorpipe::Context context_;
};

}  // namespace fairring
