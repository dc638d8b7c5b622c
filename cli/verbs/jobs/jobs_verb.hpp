#pragma once

#include <memory>

#include "cli/verbs/verb.hpp"

namespace troupe::cli {

/// A table of jobs: those that have not ended, or everything (with the nodes), or one.
std::unique_ptr<verb> make_jobs_verb(bool everything);

}  // namespace troupe::cli
