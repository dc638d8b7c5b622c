#pragma once

#include <string>
#include <string_view>

namespace troupe::cli {

/// What ends a verb's --help: commands to try, and where its files are described.
std::string examples_of(std::string_view verb);

}  // namespace troupe::cli
