#pragma once

#include <string>
#include <string_view>

namespace troupe::cli {

/// The end of a verb's --help: example commands, and where its files are documented.
std::string examples_of(std::string_view verb);

}  // namespace troupe::cli
