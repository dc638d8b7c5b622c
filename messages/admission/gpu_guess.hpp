#pragma once

#include <string>
#include <string_view>

#include "messages/domain/cluster.hpp"

namespace troupe {

/// The words of gpu_type::source by which a catalogue says that nobody has measured the type's
/// efficiency.
inline constexpr std::string_view guess_mark = "efficiency: assumed";

inline bool has_guessed_efficiency(const gpu_type& gpu) {
  return gpu.source.find(guess_mark) != std::string::npos;
}

/// For an efficiency that somebody has given instead of the catalogue's.
inline void set_given_efficiency(gpu_type& gpu) {
  if (const auto at = gpu.source.find(guess_mark); at != std::string::npos)
    gpu.source.replace(at, guess_mark.size(), "efficiency: the cluster file's");
}

}  // namespace troupe
