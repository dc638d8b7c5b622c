#pragma once

#include <string>

namespace troupe::cli {

/// The commit that this program was built from. main() says it once; "unknown" until then.
void set_build_commit(std::string commit);

}  // namespace troupe::cli
