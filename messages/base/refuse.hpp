#pragma once

#include <utility>

#include <fmt/core.h>

#include "messages/base/reason.hpp"

namespace troupe {

/// refuse() (reason.hpp) with a text for fmt::format and its values. Apart from reason.hpp, which
/// everything includes, plug-ins of policies too.
template <class... T>
requires(sizeof...(T) > 0) tl::unexpected<reason> refuse(reason::kind code,
                                                         fmt::format_string<T...> text,
                                                         T&&... values) {
  return refuse(code, fmt::format(text, std::forward<T>(values)...));
}

}  // namespace troupe
