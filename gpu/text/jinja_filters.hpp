#pragma once

#include <span>

#include "gpu/text/jinja_evaluator.hpp"

namespace troupe::gpu::jinja {

std::span<const named_function> text_filters();

}  // namespace troupe::gpu::jinja
