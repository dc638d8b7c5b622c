#pragma once

#include <string>
#include <string_view>

#include "actors/control/ledger/ledger.hpp"

namespace troupe::actors {

/// A sentence about a job's end, or an event of a training, as everybody may read it: without lines
/// of its program's output, messages of its layers and paths of its files, which are its owner's
/// and operators' alone. What Troupe itself says stays.
std::string public_detail(std::string_view detail);

/// May the job's detail have such texts?
bool has_own_text(const job_record& j);

}  // namespace troupe::actors
