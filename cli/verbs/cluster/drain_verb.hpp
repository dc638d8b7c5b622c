#pragma once

#include <memory>

#include "cli/verbs/verb.hpp"

namespace troupe::cli {

/// `drain` and `undrain`.
std::unique_ptr<verb> make_drain_verb(bool drained);

}  // namespace troupe::cli
