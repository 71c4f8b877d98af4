// The part of libibverbs' binary interface that is used here, version IBVERBS_1.1, on 64-bit Linux. Users' machines
// have the library and seldom its headers, so these are declarations of our own. Objects that the library allocates are
// declared as far as they are read; those that it fills or reads are declared whole. The assertions hold the sizes and
// places that libibverbs' own header gives (compared with rdma-core 44).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fairring::verbs {

struct Device;
struct ProtectionDomain;
struct SharedReceiveQueue;
struct Context;
struct CompletionQueue;
struct QueuePair;

struct Completion {
  std::uint64_t id;
  std::uint32_t status;
  std::uint32_t opcode;  // not valid if status is not 0
  std::uint32_t vendorError;
  std::uint32_t bytes;
  std::uint32_t immediate;
  std::uint32_t queuePair;  // its number
  std::uint32_t sourceQueuePair;
  std::uint32_t flags;
  std::uint16_t partitionKey;
  std::uint16_t sourceLid;
  std::uint8_t serviceLevel;
  std::uint8_t pathBits;
};
static_assert(sizeof(Completion) == 48 && offsetof(Completion, queuePair) == 28);

struct ScatterEntry {
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint32_t localKey;
};
static_assert(sizeof(ScatterEntry) == 16);

struct SendRequest {
  std::uint64_t id;
  SendRequest* next;
  ScatterEntry* entries;
  std::int32_t entryCount;
  std::uint32_t opcode;
  std::uint32_t flags;
  std::uint32_t immediate;
  std::uint64_t remoteAddress;
  std::uint32_t remoteKey;
  std::array<std::uint32_t, 5> ofOtherOpcodes;
  std::uint64_t sharedReceiveQueueNumber;
  std::array<std::uint64_t, 6> ofMemoryWindows;
};
static_assert(sizeof(SendRequest) == 128 && offsetof(SendRequest, remoteAddress) == 40);

struct ReceiveRequest {
  std::uint64_t id;
  ReceiveRequest* next;
  ScatterEntry* entries;
  std::int32_t entryCount;
};
static_assert(sizeof(ReceiveRequest) == 32);

// The data path goes through this table, at the library's own places.
struct ContextOperations {
  std::array<void*, 11> before;
  int (*pollCompletions)(CompletionQueue*, int count, Completion*);
  int (*requestNotification)(CompletionQueue*, int solicitedOnly);
  std::array<void*, 12> between;
  int (*postSend)(QueuePair*, SendRequest*, SendRequest** bad);
  int (*postReceive)(QueuePair*, ReceiveRequest*, ReceiveRequest** bad);
  std::array<void*, 5> after;
};
static_assert(sizeof(ContextOperations) == 256 && offsetof(ContextOperations, postSend) == 200);

struct Context {
  Device* device;
  ContextOperations operations;
  int commandDescriptor;
  int eventDescriptor;
};
static_assert(offsetof(Context, commandDescriptor) == 264 && offsetof(Context, eventDescriptor) == 268);

struct MemoryRegion {
  Context* context;
  ProtectionDomain* domain;
  void* address;
  std::size_t bytes;
  std::uint32_t handle;
  std::uint32_t localKey;
  std::uint32_t remoteKey;
};
static_assert(offsetof(MemoryRegion, localKey) == 36);

struct CompletionChannel {
  Context* context;
  int descriptor;
};

struct CompletionQueue {
  Context* context;
};

struct QueuePair {
  Context* context;
  void* ours;
  ProtectionDomain* domain;
  CompletionQueue* sendQueue;
  CompletionQueue* receiveQueue;
  SharedReceiveQueue* shared;
  std::uint32_t handle;
  std::uint32_t number;
};
static_assert(offsetof(QueuePair, number) == 52);

struct Capacity {
  std::uint32_t sendRequests;
  std::uint32_t receiveRequests;
  std::uint32_t sendEntries;
  std::uint32_t receiveEntries;
  std::uint32_t inlineBytes;
};

struct QueuePairMaking {
  void* ours;
  CompletionQueue* sendQueue;
  CompletionQueue* receiveQueue;
  SharedReceiveQueue* shared;
  Capacity capacity;
  std::uint32_t type;
  std::int32_t allSendsComplete;
};
static_assert(sizeof(QueuePairMaking) == 64);

struct Address {
  std::array<std::uint8_t, 16> gid;
  std::uint32_t flowLabel;
  std::uint8_t gidIndex;
  std::uint8_t hopLimit;
  std::uint8_t trafficClass;
  std::uint16_t lid;
  std::uint8_t serviceLevel;
  std::uint8_t pathBits;
  std::uint8_t rate;
  std::uint8_t isGlobal;
  std::uint8_t port;
};
// libibverbs' GID is aligned like a number of 64 bits.
struct alignas(8) AlignedAddress : Address {};
static_assert(sizeof(AlignedAddress) == 32 && offsetof(Address, lid) == 24 && offsetof(Address, port) == 30);

struct QueuePairState {
  std::uint32_t state;
  std::uint32_t currentState;
  std::uint32_t mtu;
  std::uint32_t migration;
  std::uint32_t datagramKey;
  std::uint32_t firstPacketReceived;
  std::uint32_t firstPacketSent;
  std::uint32_t destination;
  std::uint32_t access;
  Capacity capacity;
  AlignedAddress address;
  AlignedAddress alternative;
  std::uint16_t partitionKeyIndex;
  std::uint16_t alternativePartitionKeyIndex;
  std::uint8_t notifyWhenDrained;
  std::uint8_t draining;
  std::uint8_t readsSent;
  std::uint8_t readsReceived;
  std::uint8_t receiverNotReadyTimer;
  std::uint8_t port;
  std::uint8_t timeout;
  std::uint8_t retries;
  std::uint8_t receiverNotReadyRetries;
  std::uint8_t alternativePort;
  std::uint8_t alternativeTimeout;
  std::uint32_t rateLimit;
};
static_assert(sizeof(QueuePairState) == 144 && offsetof(QueuePairState, address) == 56 &&
              offsetof(QueuePairState, timeout) == 130);

struct PortState {
  std::uint32_t state;
  std::uint32_t mostMtu;
  std::uint32_t mtu;
  std::array<std::uint32_t, 5> between;
  std::uint16_t partitionKeys;
  std::uint16_t lid;
  std::array<std::uint8_t, 16> after;
};
static_assert(sizeof(PortState) == 52 && offsetof(PortState, lid) == 34);

struct AsyncEvent {
  union {
    CompletionQueue* completions;
    QueuePair* pair;
    int port;
  } of;
  std::uint32_t type;
};
static_assert(sizeof(AsyncEvent) == 16 && offsetof(AsyncEvent, type) == 8);

constexpr std::uint32_t kEventCompletionsFailed = 0;
constexpr std::uint32_t kEventPairFailed = 1;
constexpr std::uint32_t kEventPairRefusedRequest = 2;
constexpr std::uint32_t kEventPairRefusedAccess = 3;
constexpr std::uint32_t kEventDeviceFailed = 8;
constexpr std::uint32_t kEventPortActive = 9;
constexpr std::uint32_t kEventPortDown = 10;
constexpr std::uint32_t kEventLidChanged = 11;
constexpr std::uint32_t kEventGidChanged = 18;

constexpr std::uint32_t kLocalWrite = 1;
constexpr std::uint32_t kRemoteRead = 4;

constexpr std::uint32_t kReliableConnection = 2;

constexpr std::uint32_t kOpcodeSend = 2;
constexpr std::uint32_t kOpcodeRead = 4;
constexpr std::uint32_t kFlagSignaled = 2;
constexpr std::uint32_t kFlagInline = 8;

constexpr std::uint32_t kStateInit = 1;
constexpr std::uint32_t kStateReadyToReceive = 2;
constexpr std::uint32_t kStateReadyToSend = 3;

// The fields of QueuePairState that a change of the state reads.
constexpr std::uint32_t kOfInit = 1U << 0 | 1U << 3 | 1U << 4 | 1U << 5;
constexpr std::uint32_t kOfReadyToReceive = 1U << 0 | 1U << 7 | 1U << 8 | 1U << 12 | 1U << 15 | 1U << 17 | 1U << 20;
constexpr std::uint32_t kOfReadyToSend = 1U << 0 | 1U << 9 | 1U << 10 | 1U << 11 | 1U << 13 | 1U << 16;

}  // namespace fairring::verbs
