#pragma once

#include "messages/codec.hpp"
#include "runtime/host/host.hpp"

namespace troupe::actors {

/// Encodes and sends a message. A message that cannot be sent is lost, as on any network; senders
/// that need delivery repeat it.
inline void post(const runtime::host& h, address to, const message& m, payload body = {}) {
  h.net->send(to, encode(h.net->self(), to, m, std::move(body)), runtime::lane_of(m));
}

}  // namespace troupe::actors
