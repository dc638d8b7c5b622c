#pragma once

#include <utility>

#include <fmt/core.h>

#include "messages/base/reason.hpp"

namespace troupe {

/// A reason with a text for fmt::format and its values. Apart from reason.hpp, which everything
/// includes, plug-ins of policies too.
template <class... T>
reason because(reason::kind code, fmt::format_string<T...> text, T&&... values) {
  return {code, fmt::format(text, std::forward<T>(values)...)};
}

/// refuse() (reason.hpp) with such a reason.
template <class... T>
requires(sizeof...(T) > 0) tl::unexpected<reason> refuse(reason::kind code,
                                                         fmt::format_string<T...> text,
                                                         T&&... values) {
  return refuse(because(code, text, std::forward<T>(values)...));
}

}  // namespace troupe
