// Makes the TensorPipe pipes of one group and admits none that has not proven itself. Of two ranks the lower listens,
// and its contact (nonce, domain, URL) travels over the control connection; the higher connects.
//
//   connector -> listener   from, HMAC(secret, connector | from-to-nonce)
//   listener  -> connector  HMAC(secret, listener | from-to-nonce)
//
// TensorPipe parses strangers' bytes before any proof: garbage ends the process, and a connection that is closed before
// its greeting (a port scan) ends the listener, which is an error here. So a rank listens only if it has higher peers,
// and only until the last of them has proven itself.
// On the loop only, except for the constructor. For tensorpipe*.cc only: this header shows TensorPipe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/error.h"
#include "transport/tensorpipe_context.h"
#include "transport/transport.h"

namespace fairring {

class TensorPipeConnector {
 public:
  struct Events {
    std::function<void(int peer, const TensorPipe& pipe)> linked;
    std::function<void(int peer, const Error& error)> failed;  // never from within connect(); at most once per peer
  };

  TensorPipeConnector(TensorPipeContext& context, const ChannelSettings& settings, Events events);

  const std::string& contact() const { return contact_; }
  void connect(int peer, const std::string& contact);

 private:
  void accept();
  void onAccepted(const tensorpipe::Error& error, const TensorPipe& pipe);
  void onGreeting(std::uint64_t id, const tensorpipe::Error& error, const tensorpipe::Descriptor& greeting);
  void greet(int peer, const std::string& nonce, const TensorPipe& pipe);
  void onAnswer(int peer, const std::string& nonce, const tensorpipe::Error& error,
                const tensorpipe::Descriptor& answer);
  void link(int peer, const TensorPipe& pipe);
  void fail(int peer, const Error& error);
  std::string proof(const char* role, int from, int to, const std::string& nonce) const;

  TensorPipeContext& context_;
  const int rank_;
  const Secret secret_;
  const Events events_;
  const std::string nonce_;
  std::string contact_;
  std::shared_ptr<tensorpipe::Listener> listener_;
  std::uint64_t nextStranger_ = 0;
  std::map<std::uint64_t, TensorPipe> strangers_;  // accepted, not proven
  std::map<int, TensorPipe> connecting_;           // to lower peers that have not answered
  std::set<int> missing_;                          // peers that are neither linked nor failed
};

}  // namespace fairring
