#include "formats/load/gpu_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

namespace troupe::formats {

namespace {

// Drivers report marketing names ("NVIDIA A100-SXM4-40GB"), the catalogue has short ones
// ("A100-40GB"). A device has a type if its name contains the type's words, and has no other word
// that could distinguish cards: "A100 PCIe" is no A100 of the catalogue unless that says PCIe. Of
// several candidates the one with the nearest memory is taken.
using words = std::vector<std::string>;

/// Letters and digits, in capitals: "A100-SXM4-40GB" has three words.
words words_of(std::string_view name) {
  words all{""};
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      all.back() += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    else if (!all.back().empty())
      all.emplace_back();
  if (all.back().empty()) all.pop_back();
  return all;
}

bool is_memory_size(const std::string& word) {
  return word.size() > 2 && word.ends_with("GB") &&
         std::all_of(word.begin(), word.end() - 2, [](unsigned char c) { return std::isdigit(c); });
}

/// Words that distinguish no two types of the catalogue: its types are the SXM cards unless their
/// name says PCIe, and memory is compared by its size in bytes.
bool changes_nothing(const std::string& word) {
  constexpr std::array neutral{"NVIDIA", "TESLA", "QUADRO", "GEFORCE", "RTX",
                               "SXM2",   "SXM4",  "SXM5",   "HBM3"};
  return is_memory_size(word) || std::find(neutral.begin(), neutral.end(), word) != neutral.end();
}

/// Removes adjacent words that make up `word` ("RTX 4090" is RTX4090); false: there are none.
bool remove(words& from, const std::string& word) {
  for (std::size_t first = 0; first < from.size(); ++first) {
    std::string joined;
    for (std::size_t i = first; i < from.size() && joined.size() < word.size(); ++i) {
      joined += from[i];
      if (joined != word) continue;
      const auto at = from.begin();
      from.erase(at + static_cast<std::ptrdiff_t>(first), at + static_cast<std::ptrdiff_t>(i) + 1);
      return true;
    }
  }
  return false;
}

bool is_named(words device, const std::string& type) {
  for (const auto& word : words_of(type))
    if (!is_memory_size(word) && !remove(device, word)) return false;
  return std::all_of(device.begin(), device.end(), changes_nothing);
}

/// GB of datasheets are 2^30 bytes for most cards, and some reserve a part: from 0.96 (an L4 with
/// error correction) to 1.074 times 10^9 bytes a GB.
bool is_near(double memory_bytes, const gpu_type& type) {
  const double ratio = memory_bytes / type.memory_bytes();
  return ratio > 0.93 && ratio < 1.09;
}

}  // namespace

const gpu_type* type_of_device(std::span<const gpu_type> catalogue, std::string_view device,
                               double memory_bytes) {
  const auto named = words_of(device);
  const gpu_type* nearest = nullptr;
  const auto off = [&](const gpu_type& t) { return std::abs(t.memory_bytes() - memory_bytes); };
  for (const auto& t : catalogue)
    if (is_near(memory_bytes, t) && is_named(named, t.name) &&
        (nearest == nullptr || off(t) < off(*nearest)))
      nearest = &t;
  return nearest;
}

}  // namespace troupe::formats
