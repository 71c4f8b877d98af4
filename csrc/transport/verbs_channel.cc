#include "transport/verbs_channel.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "transport/verbs_endpoint.h"
#include "transport/verbs_hardware.h"
#include "transport/verbs_slot.h"

namespace fairring {

namespace {

using Record = SlotRecord::Kind;

constexpr std::uint32_t kSlots = VerbsEndpoint::kSlots;
// The goodbye's.
constexpr std::uint32_t kLastSlot = kSlots;
// Credit that is left for what says how many slots are free again, and for the goodbye.
constexpr std::uint32_t kCreditKept = 2;
constexpr std::uint32_t kCreditsOwedAtMost = kSlots / 2;
constexpr std::uint64_t kPieceBytes = 256 << 10;
constexpr unsigned kMostExpressInRow = 4;  // slots, or pieces, while bulk waits
// Larger messages are read, if they lie in registered memory: to copy smaller ones takes less time than to announce
// them, on soft-RoCE.
constexpr std::uint64_t kMostCopiedBytes = 32 << 10;

struct Contact {
  VerbsAddress address;
  QueuePairName slots;
  QueuePairName reads;

  static void fields(auto& row, auto& contact) { row("verbs 2", contact.address, contact.slots, contact.reads); }
};

bool isGreeting(Record kind) { return kind == Record::Hello || kind == Record::Agreed; }

// A record that so many bytes follow as it says.
bool hasBytes(Record kind) { return kind == Record::Part || kind == Record::End || isGreeting(kind); }

std::size_t rounded(std::size_t bytes) { return (bytes + kSlotGrain - 1) / kSlotGrain * kSlotGrain; }

// What to look at if a request has failed, by the state of this side's port and what it has reported.
std::string remedyFor(const std::string& trouble, const std::string& reported) {
  const std::string end = concat(reported.empty() ? "" : "; the port has reported: ", reported);
  if (!trouble.empty()) return concat("; that port can't be used at present: ", trouble, end);
  return concat(
      "; that port itself is up: look at the peer's (rdma link), at cables and switches, and whether the network lets "
      "frames of this size pass between the two",
      end);
}

class VerbsChannel final : public Channel, public std::enable_shared_from_this<VerbsChannel> {
 public:
  VerbsChannel(std::shared_ptr<VerbsEndpoint> endpoint, const ChannelSettings& settings, int peer,
               MessageReceiver& receiver);
  VerbsChannel(const VerbsChannel&) = delete;
  VerbsChannel& operator=(const VerbsChannel&) = delete;
  ~VerbsChannel() override { close(); }

  void send(std::span<const Message> messages, Released released) override;
  std::uint64_t bytesSeen() const override { return seen_; }
  std::uint64_t sends() const override { return sends_; }
  void close() override;
  bool hasEnded() const override { return life_ == Life::Ended; }
  void peerLeaves() override { peerLeaves_ = true; }
  std::string contact() const override { return rank_ < peer_ && life_ != Life::Ended ? ownContact() : ""; }
  std::string connect(const std::string& contact) override;
  bool isOpen() const override { return wasOpened_; }
  void addStaging(std::span<std::byte> memory) override { endpoint_->addStaging(memory); }

 private:
  enum class Life : std::uint8_t { Made, Connected, Ended };

  struct Batch {  // what one send() was given
    Released released;
    std::size_t unreleased = 0;  // messages
  };
  struct Sending {
    Message message;
    std::shared_ptr<Batch> batch;
    std::uint32_t number = 0;
    std::uint64_t sent = 0;  // bytes
    bool mayBeRead = true;   // by the peer
    std::uint64_t left() const { return message.header.bytes - sent; }
  };
  struct Receiving {
    MessageHeader header;
    std::byte* place = nullptr;
    std::uint64_t there = 0;      // bytes
    std::uint64_t asked = 0;      // of them read, or being read
    std::uint32_t localKey = 0;   // of the place, where it is read
    std::uint64_t address = 0;    // at the peer, likewise
    std::uint32_t remoteKey = 0;  // likewise
  };
  struct Piece {
    std::uint32_t number = 0;
    std::uint64_t bytes = 0;
  };

  std::string ownContact() const {
    return toText(Contact{endpoint_->device().address(), slotPair_->name(), readPair_->name()});
  }
  std::span<std::byte> slot(std::uint32_t index) const {
    return {slots_.data + static_cast<std::size_t>(index) * kSlotBytes, kSlotBytes};
  }
  std::uint32_t receiveSlot(std::uint32_t index) const { return kSlots + 1 + index; }
  void postReceive(std::uint32_t index) { slotPair_->receive(index, slot(receiveSlot(index)), slots_.localKey); }

  void wake();
  void pump();
  bool maySend() const;
  static TrafficClass turn(bool expressWaits, bool bulkWaits, unsigned& inRow);
  std::size_t fill(std::span<std::byte> slot);
  bool append(std::span<std::byte> slot, std::size_t& size, Sending& sending);
  void sendSlot(std::uint32_t index, std::size_t bytes);
  void releaseOne(Batch& batch);
  void say(Record kind, std::uint32_t number) { words_.push_back({.kind = kind, .number = number, .message = {}}); }

  void onCompletion(const VerbsCompletion& completion);
  void onSlot(std::span<const std::byte> bytes);
  void onRecord(const SlotRecord& record, std::span<const std::byte> bytes);
  void onPart(const SlotRecord& record, std::span<const std::byte> bytes);
  void onAnnounced(const SlotRecord& record);
  void onWanted(std::uint32_t number);
  void onReadByPeer(std::uint32_t number);
  void onPieceRead();
  std::byte* placeOf(const MessageHeader& header);
  void arrived(std::uint32_t number);
  void pumpReads();
  void onHello();
  void onOpen();
  // The last resort, for errors. None while TCP would take this channel's place by itself.
  const char* orTcp() const { return notOpened_ && !wasOpened_ ? "" : "; FAIRRING_TRANSPORT=tcp does without RDMA"; }
  // Runs what may find that the device or the peer's bytes are not in order; that ends the channel.
  template <class Act>
  void guarded(const Act& act);
  [[noreturn]] void refuse(const char* what) const;
  void onEnd(std::span<const std::byte> why);
  // Says goodbye first, with the reason, if the peer may hear it.
  void end(const Error& error, bool sayEnd);
  void shut();
  void sayEnd(std::string_view why);

  const std::shared_ptr<VerbsEndpoint> endpoint_;
  const int rank_;
  const int peer_;
  MessageReceiver& receiver_;
  const std::function<void()> opened_;
  const std::function<void(int, const Error&)> notOpened_;
  const RegisteredMemory slots_;  // those to send from, then those to receive into
  std::unique_ptr<VerbsQueuePair> slotPair_;
  std::unique_ptr<VerbsQueuePair> readPair_;
  Life life_ = Life::Made;
  bool wasHeard_ = false;  // the peer
  bool wasOpened_ = false;
  bool peerLeaves_ = false;
  bool closed_ = false;
  bool woken_ = false;  // pump() is to come
  std::string peerFabric_;

  std::vector<std::uint32_t> freeSlots_;       // to send from
  std::uint32_t credit_ = kSlots;              // slots that the peer has posted
  std::uint32_t owed_ = 0;                     // slots posted again that the peer does not know of
  std::deque<SlotRecord> words_;               // records without bytes; they go first
  std::array<std::deque<Sending>, 2> queues_;  // by traffic class
  std::map<std::uint32_t, Sending> announced_;
  std::vector<Released> released_;  // to be called
  std::uint32_t nextNumber_ = 0;

  std::map<std::uint32_t, Receiving> receiving_;
  std::array<std::deque<std::uint32_t>, 2> toRead_;  // by traffic class
  std::deque<Piece> beingRead_;
  unsigned expressSlots_ = 0;   // in a row
  unsigned expressPieces_ = 0;  // likewise
  std::uint64_t seen_ = 0;
  std::uint64_t sends_ = 0;
};

VerbsChannel::VerbsChannel(std::shared_ptr<VerbsEndpoint> endpoint, const ChannelSettings& settings, int peer,
                           MessageReceiver& receiver)
    : endpoint_(std::move(endpoint)),
      rank_(settings.rank),
      peer_(peer),
      receiver_(receiver),
      opened_(settings.opened),
      notOpened_(settings.notOpened),
      slots_(endpoint_->takeSlots()) {
  const VerbsEndpoint::Handlers handlers{
      .completed = [this](const VerbsCompletion& completion) { onCompletion(completion); },
      .deviceFailed =
          [this](const Error& error) { end(makeError(ErrorKind::Connection, error.text(), orTcp()), false); }};
  slotPair_ = endpoint_->makeQueuePair({.receives = kSlots, .sends = kSlots + 1}, PeerAccess::None, handlers);
  readPair_ = endpoint_->makeQueuePair({.receives = 1, .sends = kReadsAtOnce}, PeerAccess::Read, handlers);
  for (std::uint32_t index = 0; index < kSlots; ++index) {
    freeSlots_.push_back(kSlots - 1 - index);
    postReceive(index);
  }
}

template <class Act>
void VerbsChannel::guarded(const Act& act) {
  try {
    act();
  } catch (const Failure& failure) {
    end(failure.error(), true);
  }
}

void VerbsChannel::refuse(const char* what) const {
  throw Failure(
      makeError(ErrorKind::Connection, "rank ", peer_, " sent ", what, " by RDMA, which is not of this version"));
}

// The answer is the higher rank's own contact. The lower one speaks first: then the higher can hear it.
std::string VerbsChannel::connect(const std::string& contact) {
  assert(endpoint_->loop().isCurrent());
  if (life_ != Life::Made) return {};
  std::string answer;
  guarded([&] {
    const std::optional<Contact> there = fromText<Contact>(contact);
    if (!there) refuse("a contact");
    peerFabric_ = there->address.fabric;
    slotPair_->connect(there->address, there->slots);
    readPair_->connect(there->address, there->reads);
    life_ = Life::Connected;
    if (rank_ > peer_) {
      answer = ownContact();
    } else {
      say(Record::Hello, 0);
      wake();
    }
  });
  return answer;
}

void VerbsChannel::send(std::span<const Message> messages, Released released) {
  assert(endpoint_->loop().isCurrent());
  if (life_ == Life::Ended || messages.empty()) return;
  const auto batch = std::make_shared<Batch>(std::move(released), messages.size());
  for (const Message& message : messages)
    queues_[static_cast<std::size_t>(message.trafficClass)].push_back({message, batch, nextNumber_++});
  wake();
}

// In the next turn, which follows at once: other messages of this turn share the slots, and slots go before reads.
void VerbsChannel::wake() {
  if (std::exchange(woken_, true)) return;
  endpoint_->loop().post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->woken_ = false;
    self->guarded([&] {
      self->pump();
      self->pumpReads();
    });
    for (const Released& one : std::exchange(self->released_, {})) one();
  });
}

bool VerbsChannel::maySend() const {
  if (freeSlots_.empty()) return false;
  const bool hasWord = !words_.empty() || !queues_[0].empty() || !queues_[1].empty();
  return (hasWord && credit_ > kCreditKept) || (owed_ >= kCreditsOwedAtMost && credit_ >= kCreditKept);
}

// The lower rank's peer can hear it as soon as both have connected, the higher rank's once it has been heard.
void VerbsChannel::pump() {
  if (rank_ > peer_ && !wasHeard_) return;
  while (life_ == Life::Connected && maySend()) {
    const std::uint32_t index = freeSlots_.back();
    const std::span<std::byte> memory = slot(index);
    const std::size_t bytes = credit_ > kCreditKept ? fill(memory) : sizeof(SlotBeginning);
    freeSlots_.pop_back();
    sendSlot(index, bytes);
  }
}

void VerbsChannel::sendSlot(std::uint32_t index, std::size_t bytes) {
  const SlotBeginning beginning{.credits = std::exchange(owed_, 0)};
  std::memcpy(slot(index).data(), &beginning, sizeof beginning);
  --credit_;
  ++sends_;
  slotPair_->send(index, slot(index).first(bytes), slots_.localKey);
}

// Whose turn it is: express goes first, but so that bulk does not starve, no more than some of it in a row.
TrafficClass VerbsChannel::turn(bool expressWaits, bool bulkWaits, unsigned& inRow) {
  if (!expressWaits || (bulkWaits && inRow >= kMostExpressInRow)) {
    inRow = 0;
    return TrafficClass::Bulk;
  }
  ++inRow;
  return TrafficClass::Express;
}

// Returns how many bytes of the slot are used. A greeting takes all that is left of it.
std::size_t VerbsChannel::fill(std::span<std::byte> slot) {
  std::size_t size = sizeof(SlotBeginning);
  for (; !words_.empty() && size + sizeof(SlotRecord) <= slot.size(); words_.pop_front()) {
    SlotRecord word = words_.front();
    const std::span<std::byte> rest = slot.subspan(size + sizeof word);
    if (isGreeting(word.kind)) word.bytes = static_cast<std::uint32_t>(rest.size());
    std::memcpy(slot.data() + size, &word, sizeof word);
    std::ranges::fill(rest.first(word.bytes), std::byte{0});
    size += sizeof word + word.bytes;
  }
  const auto first = static_cast<std::size_t>(turn(!queues_[1].empty(), !queues_[0].empty(), expressSlots_));
  for (std::deque<Sending>* queue : {&queues_[first], &queues_[1 - first]}) {
    while (!queue->empty() && append(slot, size, queue->front())) queue->pop_front();
    if (!queue->empty()) break;
  }
  return size;
}

// Appends the message's record, with as many of its bytes as there is room for if it goes in parts. False: it, or the
// rest of it, is for another slot.
bool VerbsChannel::append(std::span<std::byte> slot, std::size_t& size, Sending& sending) {
  const std::uint64_t bytes = sending.message.header.bytes;
  const RegisteredMemory* const staging =
      sending.mayBeRead && bytes > kMostCopiedBytes ? endpoint_->staging(sending.message.data, bytes) : nullptr;
  const bool isRead = staging != nullptr;
  const std::size_t room = slot.size() - size;
  const std::uint64_t wanted = isRead ? 0 : std::min<std::uint64_t>(sending.left(), kPartBytes);
  if (room < sizeof(SlotRecord) + wanted) return false;
  SlotRecord record{.kind = isRead ? Record::Announced : Record::Part,
                    .trafficClass = sending.message.trafficClass,
                    .number = sending.number,
                    .message = sending.message.header,
                    .place = sending.sent,
                    .bytes = static_cast<std::uint32_t>(wanted)};
  if (isRead) {
    record.place = reinterpret_cast<std::uint64_t>(sending.message.data);
    record.bytes = staging->remoteKey;
  }
  std::memcpy(slot.data() + size, &record, sizeof record);
  size += sizeof record;
  if (isRead) {
    announced_.emplace(sending.number, std::move(sending));
    return true;
  }
  if (wanted > 0) std::memcpy(slot.data() + size, sending.message.data + sending.sent, wanted);
  size = std::min(size + rounded(wanted), slot.size());
  sending.sent += wanted;
  if (sending.left() > 0) return false;
  releaseOne(*sending.batch);
  return true;
}

void VerbsChannel::releaseOne(Batch& batch) {
  if (--batch.unreleased == 0 && batch.released) released_.push_back(std::move(batch.released));
}

void VerbsChannel::onCompletion(const VerbsCompletion& completion) {
  using Completed = VerbsCompletion::Kind;
  if (completion.status != 0) {
    const VerbsDevice& device = endpoint_->device();
    const std::string fabrics = peerFabric_ == device.address().fabric
                                    ? peerFabric_
                                    : concat(device.address().fabric, " here and ", peerFabric_, " there");
    const bool slotsWork = completion.queuePair == readPair_->name().number;
    return end(makeError(ErrorKind::Connection, "RDMA to rank ", peer_, " by ", device.name(), " (", fabrics,
                         wasOpened_ ? ") broke: " : ") can't be set up: ", device.textOf(completion.status),
                         " (status ", completion.status, ", vendor's code ", completion.vendorError, ")",
                         remedyFor(device.trouble(), endpoint_->reported()), orTcp()),
               slotsWork);
  }
  guarded([&] {
    switch (completion.kind) {
      case Completed::Send: freeSlots_.push_back(completion.index); break;
      case Completed::Read: onPieceRead(); break;
      case Completed::Receive:
        onSlot(std::span<const std::byte>(slot(receiveSlot(completion.index))).first(completion.bytes));
        if (life_ == Life::Ended) return;
        postReceive(completion.index);
        ++owed_;
    }
    if (maySend()) wake();
  });
}

void VerbsChannel::onSlot(std::span<const std::byte> bytes) {
  SlotBeginning beginning;
  if (bytes.size() < sizeof beginning) refuse("a slot");
  std::memcpy(&beginning, bytes.data(), sizeof beginning);
  if (beginning.version != SlotBeginning().version || beginning.credits > kSlots - credit_) refuse("a slot");
  credit_ += beginning.credits;
  bytes = bytes.subspan(sizeof beginning);
  while (life_ != Life::Ended && !bytes.empty()) {
    SlotRecord record;
    if (bytes.size() < sizeof record) refuse("a record");
    std::memcpy(&record, bytes.data(), sizeof record);
    bytes = bytes.subspan(sizeof record);
    const std::size_t size = hasBytes(record.kind) ? record.bytes : 0;
    if (size > bytes.size()) refuse("a part");
    onRecord(record, bytes.first(size));
    bytes = bytes.subspan(std::min(rounded(size), bytes.size()));
  }
}

void VerbsChannel::onRecord(const SlotRecord& record, std::span<const std::byte> bytes) {
  switch (record.kind) {
    case Record::Hello: return onHello();
    case Record::Agreed: return onOpen();
    case Record::Part: return onPart(record, bytes);
    case Record::Announced: return onAnnounced(record);
    case Record::Wanted: return onWanted(record.number);
    case Record::Read: return onReadByPeer(record.number);
    case Record::End: return onEnd(bytes);
  }
  refuse("a record");
}

void VerbsChannel::onHello() {
  if (std::exchange(wasHeard_, true)) return;
  if (rank_ > peer_) return say(Record::Hello, 0);
  say(Record::Agreed, 0);
  onOpen();
}

void VerbsChannel::onOpen() {
  if (!wasHeard_ || std::exchange(wasOpened_, true)) return;
  endpoint_->loop().post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->life_ == Life::Connected && self->opened_) self->opened_();
  });
}

// Null: it is refused, and the channel has ended.
std::byte* VerbsChannel::placeOf(const MessageHeader& header) {
  std::byte* const place = receiver_.place(peer_, header);
  if (place == nullptr)
    end(makeError(ErrorKind::Connection, "refused a part of ", header.bytes, " bytes from rank ", peer_), true);
  return place;
}

void VerbsChannel::onPart(const SlotRecord& record, std::span<const std::byte> bytes) {
  seen_ += sizeof record + bytes.size();
  if (record.message.bytes == 0) return receiver_.arrived(peer_, record.message);
  auto found = receiving_.find(record.number);
  if (found == receiving_.end()) {
    std::byte* const place = placeOf(record.message);
    if (place == nullptr) return;
    found = receiving_.emplace(record.number, Receiving{.header = record.message, .place = place}).first;
  }
  Receiving& message = found->second;
  if (message.there != record.place || bytes.empty() || bytes.size() > message.header.bytes - message.there ||
      message.address != 0)
    refuse("a part");
  std::memcpy(message.place + message.there, bytes.data(), bytes.size());
  message.there += bytes.size();
  if (message.there == message.header.bytes) arrived(record.number);
}

void VerbsChannel::arrived(std::uint32_t number) {
  const MessageHeader header = receiving_.extract(number).mapped().header;
  receiver_.arrived(peer_, header);
}

void VerbsChannel::onAnnounced(const SlotRecord& record) {
  seen_ += sizeof record;
  if (record.message.bytes == 0 || record.place == 0 || receiving_.contains(record.number)) refuse("an announcement");
  std::byte* const place = placeOf(record.message);
  if (place == nullptr) return;
  Receiving message{.header = record.message, .place = place};
  const RegisteredMemory* const staging = endpoint_->staging(place, record.message.bytes);
  if (staging == nullptr) {
    receiving_.emplace(record.number, message);
    return say(Record::Wanted, record.number);
  }
  message.address = record.place;
  message.remoteKey = record.bytes;
  message.localKey = staging->localKey;
  receiving_.emplace(record.number, message);
  toRead_[record.trafficClass == TrafficClass::Express ? 1 : 0].push_back(record.number);
  wake();
}

void VerbsChannel::pumpReads() {
  while (life_ == Life::Connected && beingRead_.size() < kReadsAtOnce) {
    if (toRead_[0].empty() && toRead_[1].empty()) return;
    auto& queue = toRead_[static_cast<std::size_t>(turn(!toRead_[1].empty(), !toRead_[0].empty(), expressPieces_))];
    const std::uint32_t number = queue.front();
    Receiving& message = receiving_.at(number);
    const std::uint64_t bytes = std::min(message.header.bytes - message.asked, kPieceBytes);
    readPair_->read({message.place + message.asked, bytes}, message.localKey, message.address + message.asked,
                    message.remoteKey);
    message.asked += bytes;
    beingRead_.push_back({number, bytes});
    if (message.asked == message.header.bytes) queue.pop_front();
  }
}

void VerbsChannel::onPieceRead() {
  const Piece piece = beingRead_.front();
  beingRead_.pop_front();
  seen_ += piece.bytes;
  Receiving& message = receiving_.at(piece.number);
  message.there += piece.bytes;
  wake();
  if (message.there < message.header.bytes) return;
  say(Record::Read, piece.number);
  arrived(piece.number);
}

void VerbsChannel::onWanted(std::uint32_t number) {
  auto sending = announced_.extract(number);
  if (sending.empty()) refuse("a wish for a message");
  sending.mapped().mayBeRead = false;
  queues_[static_cast<std::size_t>(sending.mapped().message.trafficClass)].push_back(std::move(sending.mapped()));
}

void VerbsChannel::onReadByPeer(std::uint32_t number) {
  const auto sending = announced_.extract(number);
  if (sending.empty()) refuse("an acknowledgement");
  releaseOne(*sending.mapped().batch);
  if (!released_.empty()) wake();
}

// The receiver is told in a task of its own: it may close channels then, which must not happen within the loop's
// polling.
void VerbsChannel::end(const Error& error, bool sayEnd) {
  if (life_ == Life::Ended) return;
  shut();
  if (sayEnd) this->sayEnd(error.text());
  slotPair_.reset();
  endpoint_->loop().post([weak = weak_from_this(), told = peerLeaves_ ? Error() : error] {
    const auto self = weak.lock();
    if (!self || self->closed_) return;
    if (!self->wasOpened_ && self->notOpened_) return self->notOpened_(self->peer_, told);
    self->receiver_.ended(self->peer_, told);
  });
}

void VerbsChannel::onEnd(std::span<const std::byte> why) {
  if (why.empty()) return end({}, false);
  const std::string_view text(reinterpret_cast<const char*>(why.data()), why.size());
  end(makeError(ErrorKind::Connection, "rank ", peer_, " broke RDMA off: ", text), false);
}

void VerbsChannel::close() {
  if (std::exchange(closed_, true) || life_ == Life::Ended) return;
  shut();
  sayEnd({});
  slotPair_.reset();
}

// After this, no message's memory is touched any more.
void VerbsChannel::shut() {
  life_ = Life::Ended;
  endpoint_->forget(*readPair_);
  readPair_.reset();
  endpoint_->forget(*slotPair_);
  for (auto& queue : queues_) queue.clear();
  announced_.clear();
  receiving_.clear();
  released_.clear();
}

// The goodbye has a slot of its own.
void VerbsChannel::sayEnd(std::string_view why) {
  if (!wasOpened_ || credit_ == 0) return;
  why = why.substr(0, kPartBytes);
  const SlotRecord record{.kind = Record::End, .message = {}, .bytes = static_cast<std::uint32_t>(why.size())};
  const std::span<std::byte> memory = slot(kLastSlot).subspan(sizeof(SlotBeginning));
  std::memcpy(memory.data(), &record, sizeof record);
  std::ranges::copy(std::as_bytes(std::span(why)), memory.begin() + sizeof record);
  try {
    sendSlot(kLastSlot, sizeof(SlotBeginning) + sizeof record + why.size());
    endpoint_->keepUntilSent(std::move(slotPair_), kLastSlot);
    // NOLINTNEXTLINE(bugprone-empty-catch): the device takes no more; the control connection tells the peer of the end
  } catch (const Failure&) {
  }
}

}  // namespace

ChannelsByPeer makeVerbsChannels(const OpenVerbs& open, Loop& loop, const ChannelSettings& settings,
                                 MessageReceiver& receiver) {
  const std::size_t peers = settings.peers.size();
  const auto endpoint = std::make_shared<VerbsEndpoint>(loop, open(settings, VerbsEndpoint::completionsFor(peers)),
                                                        settings.staging, peers);
  ChannelsByPeer channels;
  for (const int peer : settings.peers)
    channels[peer] = std::make_shared<VerbsChannel>(endpoint, settings, peer, receiver);
  return channels;
}

Transport verbsTransport() {
  const OpenVerbs open = [](const ChannelSettings& settings, std::uint32_t completions) {
    return openVerbsPort(nearestPort(settings.placeOnMachine, settings.rdmaFabric), completions);
  };
  return {.name = "verbs",
          .make = [open](Loop& loop, const ChannelSettings& settings,
                         MessageReceiver& receiver) { return makeVerbsChannels(open, loop, settings, receiver); },
          .isRdma = true};
}

}  // namespace fairring
