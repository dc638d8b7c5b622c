#pragma once

#include <string_view>

#include "gpu/text/jinja_evaluator.hpp"

namespace troupe::gpu::jinja {

/// A filter by its name.
struct filter {
  std::string_view name;
  value (*apply)(evaluator&, const value&, const arguments&);
};

/// Null: there is none of that name.
const filter* find_text_filter(std::string_view name);
const filter* find_list_filter(std::string_view name);

}  // namespace troupe::gpu::jinja
