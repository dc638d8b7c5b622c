#pragma once

#include <string>

namespace troupe::test {

/// The checkout that the tests were built from, without a slash at its end. A function, not a macro
/// on every compiler command: with that, no object of one checkout would be found in the compiler
/// cache by another.
std::string source_dir();

}  // namespace troupe::test
