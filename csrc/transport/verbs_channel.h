// Channels over an RDMA device, by verbs. Between two ranks there are two queue pairs. The first carries slots
// (verbs_slot.h): messages of up to 32 KiB, copied into registered memory and out of it, and the announcements of large
// ones. The second carries the bytes of large messages: the receiver reads them from the sender's staging into its own,
// in pieces of up to 256 KiB, four of them under way at once and express ahead of bulk, and says when it is done. So no
// large part is copied, and neither a small message nor an express one waits for more than four pieces of bulk. Memory
// that is not registered goes in parts through the slots, however much it is.
//
// A slot is only sent if the peer has one posted for it: credits say how many. Contacts travel over the control
// connection, from the lower rank to the higher and back; nothing listens. The lower rank says hello through the queue
// pair, the higher answers, and the lower, whose channel is open by that, says so; with that the higher's is open. So
// the lower one decides whether the channel comes about. Each of the three fills a slot: a path that lets only small
// frames pass opens no channel.
//
// An open channel whose queue pairs break is connected anew, as long as the patience lasts (verbs_outage.h). The lower
// rank makes others and sends a contact; a higher one that is first to notice asks for that. A contact says which slots
// have been processed, so that the others can be sent again.
#pragma once

#include <functional>
#include <memory>

#include "transport/transport.h"
#include "transport/verbs_device.h"

namespace fairring {

// The port that this rank takes, with room for that many completions.
using OpenVerbs = std::function<std::unique_ptr<VerbsDevice>(const ChannelSettings&, std::uint32_t completions)>;

// "verbs", on the nearest port of this machine.
Transport verbsTransport();
ChannelsByPeer makeVerbsChannels(const OpenVerbs& open, Loop& loop, const ChannelSettings& settings,
                                 MessageReceiver& receiver);

}  // namespace fairring
