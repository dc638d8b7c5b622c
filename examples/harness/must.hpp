#pragma once

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "messages/base/reason.hpp"

namespace troupe {

/// The value, or the end of the example with the reason.
template <class T>
T must(expected<T> x) {
  if (x) return std::move(*x);
  fmt::print(stderr, "{}\n", x.error().text);
  std::exit(1);
}

}  // namespace troupe
