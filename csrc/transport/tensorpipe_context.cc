#include "transport/tensorpipe_context.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "transport/tensorpipe_transport.h"

namespace fairring {

namespace {

// TensorPipe ends the process if it can't listen, so this tries first.
void checkAddress(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(address.c_str(), "0", &hints, &found);
  check(code == 0, ErrorKind::Configuration, "TensorPipe can't listen on \"", address, "\": ", ::gai_strerror(code),
        "; it takes the IP address of an interface of this machine");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  const Descriptor probe(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(probe && ::bind(probe.get(), found->ai_addr, found->ai_addrlen) == 0, ErrorKind::Configuration,
        "TensorPipe can't listen on ", address, ": ", std::strerror(errno),
        "; it takes the IP address of an interface of this machine");
}

}  // namespace

TensorPipeContext::TensorPipeContext(Loop& loop, const std::string& transport)
    : loop_(loop), name_(transport), transport_(makeTensorPipeTransport(transport)) {
  context_.registerTransport(0, name_, transport_);
}

std::shared_ptr<tensorpipe::Listener> TensorPipeContext::listen(const std::string& bindAddress) {
  if (name_ == "shm") return context_.listen({"shm://"});  // the system chooses a name
  checkAddress(bindAddress);
  const bool v6 = bindAddress.find(':') != std::string::npos;
  return context_.listen({name_ + "://" + (v6 ? "[" + bindAddress + "]" : bindAddress)});
}

void TensorPipeContext::close() {
  if (!std::exchange(*open_, false)) return;
  context_.join();
}

}  // namespace fairring
