#pragma once

#include <utility>

#include <fmt/format.h>

#include "messages/base/reason.hpp"

namespace troupe {

/// refuse() with a sentence that is formatted from values.
template <class... T>
requires(sizeof...(T) > 0) tl::unexpected<reason> refuse(reason::kind code,
                                                         fmt::format_string<T...> text,
                                                         T&&... values) {
  return refuse(code, fmt::format(text, std::forward<T>(values)...));
}

}  // namespace troupe
