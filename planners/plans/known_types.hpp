#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

#include "messages/domain/cluster.hpp"

namespace troupe::planners {

/// For the end of a sentence about a GPU type that the cluster does not have: "; did you mean
/// A100-40GB or A100-80GB?", or the types that it has if none has a name like it.
inline std::string known_types_text(const cluster& c, std::string_view wanted) {
  constexpr std::size_t shown = 8;
  const auto plain = [](std::string_view name) {
    std::string letters;
    for (const char ch : name)
      if (std::isalnum(static_cast<unsigned char>(ch)) != 0)
        letters += static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
    return letters;
  };
  const auto listed = [&](bool alike) {
    std::string names;
    std::size_t count = 0;
    for (gpu_index g = 0; g < c.gpus.size(); ++g) {
      const auto name = plain(c.gpus[g].name), asked = plain(wanted);
      const bool like = !asked.empty() && (name.find(asked) != std::string::npos ||
                                           asked.find(name) != std::string::npos);
      const bool here =
          std::ranges::any_of(c.nodes, [g](const node& n) { return n.gpu == g && !n.removed; });
      if (!here || (alike && !like) || ++count > shown) continue;
      names += (names.empty() ? "" : alike ? " or " : ", ") + c.gpus[g].name;
    }
    return names;
  };
  if (const auto alike = listed(true); !alike.empty()) return "; did you mean " + alike + "?";
  const auto all = listed(false);
  return all.empty() ? all : "; it has " + all;
}

}  // namespace troupe::planners
