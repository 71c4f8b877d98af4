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
#include "transport/verbs_outage.h"
#include "transport/verbs_slot.h"

namespace fairring {

namespace {

using Record = SlotRecord::Kind;

constexpr std::uint32_t kSlots = VerbsEndpoint::kSlots;
// The goodbye's. Before that a signal goes from it, or comes into it, whose bytes mean nothing.
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
  std::uint32_t attempt = 0;    // counts the queue pairs of the channel
  std::uint64_t processed = 0;  // slots of the receiver's
  std::string why;              // those of the last attempt are given up; empty: it is the first attempt
  VerbsAddress address;
  QueuePairName slots;
  QueuePairName reads;

  static void fields(auto& row, auto& contact) {
    row("verbs 3", contact.attempt, contact.processed, contact.why, contact.address, contact.slots, contact.reads);
  }
};

// The higher rank found the queue pairs of this attempt broken.
struct Broken {
  std::uint32_t attempt = 0;
  std::string why;

  static void fields(auto& row, auto& broken) { row("verbs broken 1", broken.attempt, broken.why); }
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
  void peerLeaves() override;
  std::string contact() const override { return slotPair_ && !isHigher() ? ownContact() : ""; }
  std::string connect(const std::string& contact) override;
  bool isOpen() const override { return wasOpened_; }
  void addStaging(std::span<std::byte> memory) override { endpoint_->addStaging(memory); }

 private:
  enum class Life : std::uint8_t {
    Made,       // there are queue pairs, which are not connected
    Connected,  // they are here, and may not be at the peer
    Ready,
    Broken,  // there are none
    Ended,
  };

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
    std::uint64_t begin = 0;  // in the message
    std::uint64_t bytes = 0;
  };

  bool isHigher() const { return rank_ > peer_; }
  std::string ownContact() const;
  std::span<std::byte> slot(std::uint32_t index) const {
    return {slots_.data + static_cast<std::size_t>(index) * kSlotBytes, kSlotBytes};
  }
  std::uint32_t receiveSlot(std::uint32_t index) const { return kSlots + 1 + index; }
  void postReceive(std::uint32_t index) { slotPair_->receive(index, slot(receiveSlot(index)), slots_.localKey); }

  void makePairs();
  void dropPairs();
  std::string join(const Contact& there);
  void begin();
  void onBreak(const Error& error, bool sayEnd);
  void onBrokenThere(const Broken& there);
  void tryAgain();
  void onDeviceFailed(const Error& error) { end(makeError(ErrorKind::Connection, error.text(), orTcp()), false); }

  void wake();
  void pump();
  bool maySend() const;
  static TrafficClass turn(bool expressWaits, bool bulkWaits, unsigned& inRow);
  std::size_t fill(std::span<std::byte> slot);
  bool append(std::span<std::byte> slot, std::size_t& size, Sending& sending);
  void sendSlot(std::uint32_t index, std::size_t bytes);
  void postSlot(std::uint32_t index);
  void releaseOne(Batch& batch);
  void say(Record kind, std::uint32_t number) { words_.push_back({.kind = kind, .number = number, .message = {}}); }

  void onCompletion(const VerbsCompletion& completion);
  Error errorOf(const VerbsCompletion& completion) const;
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
  void read(const Piece& piece);
  void onHello();
  void onOpen();
  // The last resort, for errors. None while TCP would take this channel's place by itself.
  const char* orTcp() const { return notOpened_ && !wasOpened_ ? "" : "; FAIRRING_TRANSPORT=tcp does without RDMA"; }
  // Runs what may find that the device or the peer's bytes are not in order; that ends the channel.
  template <class Act>
  void guarded(const Act& act);
  // Runs what the device may refuse while its port is down, which counts to an outage that is under way.
  template <class Act>
  void attempted(const Act& act);
  [[noreturn]] void refuse(const char* what) const;
  void onEnd(std::span<const std::byte> why);
  // Says goodbye first, with the reason, if the peer may hear it.
  void end(const Error& error, bool sayEnd);
  void shut(std::optional<std::string_view> goodbye);
  void sayEnd(std::string_view why);

  const std::shared_ptr<VerbsEndpoint> endpoint_;
  const int rank_;
  const int peer_;
  MessageReceiver& receiver_;
  const std::function<void()> opened_;
  const std::function<void(int, const Error&)> notOpened_;
  const std::function<void(int, const std::string&)> sendContact_;
  const RegisteredMemory slots_;  // those to send from, then those to receive into
  std::unique_ptr<VerbsQueuePair> slotPair_;
  std::unique_ptr<VerbsQueuePair> readPair_;
  std::uint32_t attempt_ = 1;
  VerbsOutage outage_;
  Life life_ = Life::Made;
  bool wasHeard_ = false;  // the peer
  bool wasOpened_ = false;
  bool peerLeaves_ = false;
  bool closed_ = false;
  bool woken_ = false;  // pump() is to come
  std::string peerFabric_;

  // Slots to send from are a ring: that of number n is used again by number n + kSlots.
  std::uint64_t sent_ = 0;                             // slots
  std::array<std::uint32_t, kSlots + 1> slotBytes_{};  // of the last that was sent from each place
  std::uint32_t sendsUnderWay_ = 0;                    // that the device has not completed
  std::uint32_t credit_ = kSlots;                      // slots that may be sent before the peer has processed more
  std::uint64_t processed_ = 0;                        // slots of the peer's
  std::uint64_t processedThere_ = 0;                   // of this rank's, by the peer's last contact
  std::uint32_t owed_ = 0;                             // slots posted again that the peer does not know of
  std::deque<SlotRecord> words_;                       // records without bytes; they go first
  std::array<std::deque<Sending>, 2> queues_;          // by traffic class
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
      sendContact_(settings.relinking.sendContact),
      slots_(endpoint_->takeSlots()),
      outage_(
          endpoint_->loop(), settings.relinking.patience,
          {.tryAgain = [this] { tryAgain(); }, .lastedTooLong = [this](const Error& error) { end(error, false); }}) {
  makePairs();
}

void VerbsChannel::makePairs() {
  const VerbsEndpoint::Handlers handlers{
      .completed = [this](const VerbsCompletion& completion) { onCompletion(completion); },
      .deviceFailed = [this](const Error& error) { onDeviceFailed(error); }};
  slotPair_ = endpoint_->makeQueuePair({.receives = kSlots, .sends = kSlots + 1}, PeerAccess::None, handlers);
  readPair_ = endpoint_->makeQueuePair({.receives = 1, .sends = kReadsAtOnce + 1}, PeerAccess::Read, handlers);
  life_ = Life::Made;
  for (std::uint32_t index = 0; index < kSlots; ++index) postReceive(index);
  if (isHigher()) readPair_->receive(kLastSlot, slot(kLastSlot), slots_.localKey);
}

// The device touches no memory for them any more, and nothing more of them is processed.
void VerbsChannel::dropPairs() {
  for (auto* const pair : {&readPair_, &slotPair_}) {
    if (*pair) endpoint_->forget(**pair);
    pair->reset();
  }
  life_ = Life::Broken;
}

std::string VerbsChannel::ownContact() const {
  return toText(Contact{attempt_, processed_, outage_.isUnderWay() ? outage_.why().text() : "",
                        endpoint_->device().address(), slotPair_->name(), readPair_->name()});
}

template <class Act>
void VerbsChannel::guarded(const Act& act) {
  try {
    act();
  } catch (const Failure& failure) {
    end(failure.error(), true);
  }
}

template <class Act>
void VerbsChannel::attempted(const Act& act) {
  try {
    act();
  } catch (const Failure& failure) {
    onBreak(failure.error(), true);
  }
}

void VerbsChannel::refuse(const char* what) const {
  throw Failure(
      makeError(ErrorKind::Connection, "rank ", peer_, " sent ", what, " by RDMA, which is not of this version"));
}

std::string VerbsChannel::connect(const std::string& contact) {
  assert(endpoint_->loop().isCurrent());
  std::string answer;
  if (life_ == Life::Ended) return answer;
  guarded([&] {
    if (const auto broken = fromText<Broken>(contact)) return onBrokenThere(*broken);
    const auto there = fromText<Contact>(contact);
    if (!there) refuse("a contact");
    answer = join(*there);
  });
  return answer;
}

// The answer is the higher rank's own contact. The lower one speaks first, by a signal: it has connected by then, so
// that it can hear the higher one.
std::string VerbsChannel::join(const Contact& there) {
  if (there.attempt > attempt_) {
    if (!isHigher()) refuse("a contact");
    outage_.begin(makeError(ErrorKind::Connection, "rank ", peer_, " gave RDMA up: ", there.why));
    dropPairs();
    attempt_ = there.attempt;
    attempted([&] { makePairs(); });
  }
  // It came before, or is of queue pairs that have been given up.
  if (there.attempt != attempt_ || life_ != Life::Made) return {};
  if (there.processed > sent_ || sent_ - there.processed > kSlots - credit_) refuse("a count of slots");
  std::string answer;
  attempted([&] {
    peerFabric_ = there.address.fabric;
    processedThere_ = there.processed;
    slotPair_->connect(there.address, there.slots);
    readPair_->connect(there.address, there.reads);
    life_ = Life::Connected;
    if (isHigher()) {
      answer = ownContact();
      return;
    }
    if (!wasOpened_) say(Record::Hello, 0);
    readPair_->send(kLastSlot, slot(kLastSlot), slots_.localKey);
    begin();
  });
  return answer;
}

// Both sides are connected. Where this follows a break, each slot is processed exactly once. The peer has processed
// those below the number in its contact: it had dropped the old queue pairs by then, and with them what they had
// delivered and the channel had not yet seen. So this sends all from that number on, in order, into as many receives.
// Their bytes are still there, as a place in the ring is used again only when the peer has processed what it held, and
// says so by credits; those lie within slots, so that each is counted once as well, and credit_ needs no change. A read
// that was under way is carried out again: neither has its message arrived here, nor has the peer been told that it was
// read, so both sides' memory is as it was.
void VerbsChannel::begin() {
  life_ = Life::Ready;
  sendsUnderWay_ = 0;
  for (std::uint64_t number = processedThere_; number < sent_; ++number)
    postSlot(static_cast<std::uint32_t>(number % kSlots));
  for (const Piece& piece : beingRead_) read(piece);
  wake();
}

// What waits to be sent or read goes on waiting. Without a peer that stays, this is the end.
void VerbsChannel::onBreak(const Error& error, bool sayEnd) {
  if (!wasOpened_ || !sendContact_ || peerLeaves_) return end(error, sayEnd);
  dropPairs();
  outage_.begin(error);
  if (isHigher()) sendContact_(peer_, toText(Broken{attempt_, error.text()}));
}

// An attempt of the same outage that has failed at the peer is not repeated at once.
void VerbsChannel::onBrokenThere(const Broken& there) {
  if (isHigher() || there.attempt > attempt_) refuse("a report of a break");
  if (there.attempt == attempt_)
    onBreak(makeError(ErrorKind::Connection, "rank ", peer_, " lost RDMA: ", there.why), false);
}

void VerbsChannel::tryAgain() {
  if (endpoint_->failure()) return onDeviceFailed(endpoint_->failure());
  if (isHigher()) return;
  dropPairs();
  ++attempt_;
  attempted([&] {
    makePairs();
    sendContact_(peer_, ownContact());
  });
}

void VerbsChannel::peerLeaves() {
  peerLeaves_ = true;
  if (outage_.isUnderWay()) end({}, false);
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
  if (sendsUnderWay_ == kSlots) return false;
  const bool hasWord = !words_.empty() || !queues_[0].empty() || !queues_[1].empty();
  return (hasWord && credit_ > kCreditKept) || (owed_ >= kCreditsOwedAtMost && credit_ >= kCreditKept);
}

void VerbsChannel::pump() {
  while (life_ == Life::Ready && maySend()) {
    const auto index = static_cast<std::uint32_t>(sent_ % kSlots);
    const std::size_t bytes = credit_ > kCreditKept ? fill(slot(index)) : sizeof(SlotBeginning);
    ++sent_;
    sendSlot(index, bytes);
  }
}

void VerbsChannel::sendSlot(std::uint32_t index, std::size_t bytes) {
  const SlotBeginning beginning{.credits = std::exchange(owed_, 0)};
  std::memcpy(slot(index).data(), &beginning, sizeof beginning);
  --credit_;
  slotBytes_[index] = static_cast<std::uint32_t>(bytes);
  postSlot(index);
}

void VerbsChannel::postSlot(std::uint32_t index) {
  ++sends_;
  ++sendsUnderWay_;
  slotPair_->send(index, slot(index).first(slotBytes_[index]), slots_.localKey);
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
  const bool isOfReads = completion.queuePair == readPair_->name().number;
  if (completion.status != 0) {
    endpoint_->onAsyncEvents();  // one of them may be the cause, and end the channel
    if (life_ == Life::Ended) return;
    const Error error = errorOf(completion);
    return isOfPath(completion.status) ? onBreak(error, isOfReads) : end(error, isOfReads);
  }
  const bool isSignal = isOfReads && completion.kind != Completed::Read;
  guarded([&] {
    switch (completion.kind) {
      case Completed::Send: sendsUnderWay_ -= isSignal ? 0 : 1; break;
      case Completed::Read: onPieceRead(); break;
      case Completed::Receive:
        if (isSignal) {
          attempted([&] { begin(); });
          if (life_ != Life::Ready) return;
          break;
        }
        onSlot(std::span<const std::byte>(slot(receiveSlot(completion.index))).first(completion.bytes));
        if (life_ == Life::Ended) return;
        ++processed_;
        postReceive(completion.index);
        ++owed_;
    }
    // The signal alone proves no more than itself, if anything else is under way.
    if (!isSignal || (sendsUnderWay_ == 0 && beingRead_.empty())) outage_.end();
    if (maySend()) wake();
  });
}

Error VerbsChannel::errorOf(const VerbsCompletion& completion) const {
  const VerbsDevice& device = endpoint_->device();
  const std::string fabrics = peerFabric_ == device.address().fabric
                                  ? peerFabric_
                                  : concat(device.address().fabric, " here and ", peerFabric_, " there");
  return makeError(ErrorKind::Connection, "RDMA to rank ", peer_, " by ", device.name(), " (", fabrics,
                   wasOpened_ ? ") broke: " : ") can't be set up: ", device.textOf(completion.status), " (status ",
                   completion.status, ", vendor's code ", completion.vendorError, ")",
                   remedyFor(device.trouble(), endpoint_->reported()), orTcp());
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
  if (isHigher()) return say(Record::Hello, 0);
  say(Record::Agreed, 0);
  onOpen();
}

void VerbsChannel::onOpen() {
  if (!wasHeard_ || std::exchange(wasOpened_, true)) return;
  endpoint_->loop().post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->life_ != Life::Ended && self->opened_) self->opened_();
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
  while (life_ == Life::Ready && beingRead_.size() < kReadsAtOnce) {
    if (toRead_[0].empty() && toRead_[1].empty()) return;
    auto& queue = toRead_[static_cast<std::size_t>(turn(!toRead_[1].empty(), !toRead_[0].empty(), expressPieces_))];
    const std::uint32_t number = queue.front();
    Receiving& message = receiving_.at(number);
    const Piece piece{number, message.asked, std::min(message.header.bytes - message.asked, kPieceBytes)};
    read(piece);
    message.asked += piece.bytes;
    beingRead_.push_back(piece);
    if (message.asked == message.header.bytes) queue.pop_front();
  }
}

void VerbsChannel::read(const Piece& piece) {
  const Receiving& message = receiving_.at(piece.number);
  readPair_->read({message.place + piece.begin, piece.bytes}, message.localKey, message.address + piece.begin,
                  message.remoteKey);
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
  shut(sayEnd ? std::optional<std::string_view>(error.text()) : std::nullopt);
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
  shut("");
}

// After this, no message's memory is touched any more.
void VerbsChannel::shut(std::optional<std::string_view> goodbye) {
  if (goodbye && wasOpened_ && life_ == Life::Ready && credit_ > 0) sayEnd(*goodbye);
  dropPairs();
  life_ = Life::Ended;
  outage_.end();
  endpoint_->channelEnds();
  for (auto& queue : queues_) queue.clear();
  announced_.clear();
  receiving_.clear();
  released_.clear();
}

// The goodbye has a slot of its own, from which the signal may not have gone yet.
void VerbsChannel::sayEnd(std::string_view why) {
  endpoint_->forget(*readPair_);
  readPair_.reset();
  why = why.substr(0, kPartBytes);
  const SlotRecord record{.kind = Record::End, .message = {}, .bytes = static_cast<std::uint32_t>(why.size())};
  const std::span<std::byte> memory = slot(kLastSlot).subspan(sizeof(SlotBeginning));
  std::memcpy(memory.data(), &record, sizeof record);
  std::ranges::copy(std::as_bytes(std::span(why)), memory.begin() + sizeof record);
  try {
    sendSlot(kLastSlot, sizeof(SlotBeginning) + sizeof record + why.size());
    endpoint_->forget(*slotPair_);
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
