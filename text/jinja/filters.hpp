#pragma once

#include <span>

#include "text/jinja/evaluator.hpp"

namespace troupe::gpu::jinja {

std::span<const named_function> text_filters();

}  // namespace troupe::gpu::jinja
