#include "gpu/saving/state_copy.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/model/checkpoint.hpp"
#include "gpu/model/parameters.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

std::span<const float> floats_of(const payload& p) {
  return {reinterpret_cast<const float*>(p.bytes().data()), p.bytes().size() / sizeof(float)};
}

}  // namespace

// The tied matrix is stored once, by the stage with the embedding; in a copy it follows what is the
// stage's own.
expected<void> save_copy(const std::filesystem::path& directory, const stage_spec& s,
                         const operations::values::result& copy) {
  const auto all = parameters_of(s);
  std::size_t own = 0, values = 0;
  for (const auto& p : all) {
    values += p.values();
    if (!p.tied) own += p.values();
  }
  const auto weights = floats_of(copy.weights), first = floats_of(copy.first_moments),
             second = floats_of(copy.second_moments);
  if (weights.size() != values || first.size() != values || second.size() != values)
    return refuse(reason::kind::malformed, "a copy of {} values, expected {}", weights.size(),
                  values);
  std::vector<saved_values> to_save;
  for (const auto& p : all) {
    if (p.tied && !s.has_embedding) continue;
    const auto at = p.tied ? own : p.offset, n = p.values();
    to_save.push_back({&p, weights.subspan(at, n), first.subspan(at, n), second.subspan(at, n)});
  }
  return save_stage(directory, s, copy.steps, to_save);
}

}  // namespace troupe::gpu
