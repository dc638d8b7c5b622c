#pragma once

#include <caf/all.hpp>

#include "actors/protocol/protocol.hpp"
#include "messages/wire/message.hpp"

namespace troupe::actors {

/// To a decoder: it is no longer ordered. It ends its requests at the fronts, and exits.
struct stop_serving {};

using decoder_actor = caf::typed_actor<
    caf::reacts_to<inbound<generate>>, caf::reacts_to<inbound<generated_ack>>,
    caf::reacts_to<inbound<cancel_generate>>, caf::reacts_to<inbound<prefill_reply>>,
    caf::reacts_to<inbound<prefill_progress>>, caf::reacts_to<inbound<prefill_block>>,
    caf::reacts_to<stop_serving>, caf::reacts_to<call_now>, caf::reacts_to<tick>>;

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::stop_serving)
