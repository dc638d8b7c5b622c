#pragma once

#include <string>

namespace troupe::cli {

/// The commit that this program was built from, set by main(); "unknown" until then.
void set_build_commit(std::string commit);

}  // namespace troupe::cli
