#pragma once

#include <string_view>

namespace troupe::formats {

/// For keys of other schedulers' job files: what to use here instead. Empty: no such key is known.
std::string_view advice_on_key(std::string_view key);

}  // namespace troupe::formats
