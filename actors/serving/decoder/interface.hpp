#pragma once

#include "actors/protocol/protocol.hpp"
#include "messages/wire/message.hpp"

namespace troupe::actors {

/// To a decoder: it is no longer ordered. It ends its requests at the fronts, and exits.
struct stop_serving {};

/// To a decoder: its node is to end. It takes no more requests, and says that it is over once it
/// has none.
struct drain_serving {};

using decoder_actor = actor_of<inbound<generate>, inbound<generated_ack>, inbound<cancel_generate>,
                               inbound<prefill_reply>, inbound<prefill_progress>,
                               inbound<prefill_block>, stop_serving, drain_serving, call_now, tick>;

}  // namespace troupe::actors
