// The TensorPipe context of one group, and the one way from its threads to the loop: onLoop. They only post; nothing of
// ours is touched or destroyed on them. For tensorpipe*.cc alone: this header shows TensorPipe.
// On the loop only, but for the constructor.
#pragma once

#include <tensorpipe/tensorpipe.h>

#include <memory>
#include <string>

#include "base/loop.h"

namespace fairring {

using TensorPipe = std::shared_ptr<tensorpipe::Pipe>;

class TensorPipeContext {
 public:
  TensorPipeContext(Loop& loop, const std::string& transport, int peers);  // throws Failure(Configuration)
  TensorPipeContext(const TensorPipeContext&) = delete;
  TensorPipeContext& operator=(const TensorPipeContext&) = delete;
  ~TensorPipeContext() { close(); }

  Loop& loop() const { return loop_; }
  const std::string& domain() const { return transport_->domainDescriptor(); }
  bool reaches(const std::string& domain) const { return transport_->canCommunicateWithRemote(domain); }
  std::shared_ptr<tensorpipe::Listener> listen(const std::string& bindAddress);
  std::string urlOf(const tensorpipe::Listener& listener) const { return listener.url(name_); }
  TensorPipe connect(const std::string& url) { return context_.connect(url); }

  // Ends all channels and waits until TensorPipe's threads have let go of all memory. Quick: they wait for nobody.
  void close();

  // False once closed. Who calls out of here and goes on afterwards keeps a copy: it outlives what it was copied from.
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
