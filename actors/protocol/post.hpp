#pragma once

#include "messages/codec.hpp"
#include "runtime/host/host.hpp"

namespace troupe::actors {

/// Encodes a message and sends it on its way. What cannot be sent is lost, as on any network:
/// whoever needs it said says it again.
inline void post(const runtime::host& h, address to, const message& m, payload body = {}) {
  h.net->send(to, encode(h.net->self(), to, m, std::move(body)), runtime::lane_of(m));
}

}  // namespace troupe::actors
