#include "transport/control.h"

#include <cassert>

namespace fairring {

Control::Control(Loop& loop, LoopThread& vitals, ControlReceiver& receiver, Heartbeat heartbeat)
    : loop_(loop), vitals_(vitals), self_(std::make_shared<Control*>(this)) {
  assert(loop_.isCurrent());
  vitals_.runAndWait([&] {
    vitals_.loop().onUncaught(this, [&loop = loop_, &receiver, self = std::weak_ptr(self_)](const Error& error) {
      loop.post([&receiver, self, error] {
        if (!self.expired()) receiver.onTrouble(error);
      });
    });
    stream_ = std::make_unique<ControlConnections>(vitals_.loop(), std::move(heartbeat), eventsTo(receiver));
  });
}

Control::~Control() {
  vitals_.runAndWait([this] {
    vitals_.loop().forgetUncaught(this);
    stream_.reset();
  });
}

ControlConnections::Events Control::eventsTo(ControlReceiver& receiver) {
  const std::weak_ptr<Control*> self = self_;
  return {
      [&loop = loop_, &receiver, self](int peer, ControlMessage message) {
        const auto held = std::make_shared<ControlMessage>(std::move(message));  // tasks are copyable, this is not
        loop.post([&receiver, self, peer, held] {
          if (!self.expired()) receiver.onControl(peer, std::move(*held));
        });
      },
      [&loop = loop_, &receiver, self](int peer, const Error& error) {
        loop.post([&receiver, self, peer, error] {
          const auto control = self.lock();
          if (!control) return;
          (*control)->peers_.erase(peer);
          receiver.onControlEnded(peer, error);
        });
      },
      [&loop = loop_, &receiver, self](int peer, std::chrono::milliseconds silence) {
        loop.post([&receiver, self, peer, silence] {
          if (!self.expired()) receiver.onSilent(peer, silence);
        });
      },
  };
}

void Control::add(int peer, Stream stream) {
  assert(loop_.isCurrent());
  peers_.insert(peer);
  const auto held = std::make_shared<Stream>(std::move(stream));
  vitals_.loop().post([this, peer, held] { stream_->add(peer, std::move(*held)); });
}

void Control::send(int peer, ControlType type, std::string text, std::vector<int> descriptors) {
  assert(loop_.isCurrent());
  vitals_.loop().post([this, peer, type, text = std::move(text), descriptors = std::move(descriptors)] {
    stream_->send(peer, type, text, descriptors);
  });
}

}  // namespace fairring
