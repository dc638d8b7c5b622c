#pragma once

#include <string>
#include <utility>

#include "messages/base/reason.hpp"

namespace troupe::actors {

/// Why an entry contradicts the ledger.
inline auto contradiction(std::string text) {
  return refuse(reason::kind::invalid, std::move(text));
}

}  // namespace troupe::actors
