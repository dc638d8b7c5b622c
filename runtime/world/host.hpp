#pragma once

#include <cstdint>
#include <memory>

#include "messages/base/random.hpp"
#include "runtime/host/clock.hpp"
#include "runtime/host/transport.hpp"
#include "runtime/journal/journal.hpp"

namespace troupe::runtime {

/// Everything a world provides to one host (a process, or a simulated machine) when it starts.
/// A restart gets a new one: actors keep nothing of an earlier incarnation but what the journal
/// has.
struct host {
  address self = 0;
  std::uint64_t incarnation = 0;  // larger after every start
  std::shared_ptr<const runtime::clock> clock;
  std::shared_ptr<transport> net;
  std::shared_ptr<runtime::journal> journal;  // the controller's; null elsewhere
  random_source random{0};
};

}  // namespace troupe::runtime
