#pragma once

#include <string>
#include <string_view>

namespace troupe::cli {

/// The sentence of an answer that is an error, in any of the forms in which servers give one;
/// empty: it is empty.
std::string sentence_of_error(std::string_view body);

}  // namespace troupe::cli
