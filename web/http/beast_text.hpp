#pragma once

#include <string>

#include <boost/beast/core/string.hpp>

namespace troupe::web {

/// Beast's views are Boost's, which std::string does not convert from.
inline std::string text_of(boost::beast::string_view v) {
  return {v.data(), v.size()};
}

}  // namespace troupe::web
