#include <utility>

#include "actors/node/node.hpp"
#include "actors/protocol/messenger.hpp"
#include "messages/base/find_in.hpp"

// The node's part about the logs of its programs.

namespace troupe::actors {

/// Read in pieces: a client asks for the next one from where this one ends.
void node_state::on_read_log(address from, const read_log& r) {
  log_chunk reply{r.request, r.lease, r.offset, true, {}};
  const auto* p = find_in(parts_, r.lease);
  const bool running = p && p->report.now == part_report::state::running;
  payload bytes;
  if (!options_.process_runner) {
    reply.why = {reason::kind::unavailable, "simulated work has no log"};
  } else if (auto read = options_.process_runner->read_log(r.lease, r.offset); read) {
    reply.offset = read->offset;
    bytes = std::move(read->bytes);
    reply.ended = !running && bytes.empty();
  } else {
    reply.ended = !running;
    reply.why = read.error();
  }
  send_message(host_, from, reply, std::move(bytes));
}

}  // namespace troupe::actors
