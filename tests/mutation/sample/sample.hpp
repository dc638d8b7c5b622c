#pragma once

#include <optional>
#include <string>
#include <vector>

std::vector<double> sample(const std::vector<int>& xs, std::optional<int> extra);
