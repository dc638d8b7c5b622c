#pragma once

#include <string>

namespace troupe::cli {

/// "frenzy, opportunistic, ...": for help texts.
std::string known_policies();
/// What to say to a name that is no policy's: the nearest one, and all there are.
std::string unknown_policy(const std::string& name);

}  // namespace troupe::cli
