#include "planners/serving/decoder_memory.hpp"

#include "messages/base/units.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {

// The device holds embedding and head as two arrays, also where the model ties them. The cache is
// the job's own figure (kv_gb), whatever the model: it bounds how many sequences run at a time.
decoder_memory decoder_memory_of(const serving& s) {
  constexpr double number = sizeof(float);
  const auto& m = s.model.shape;
  const double hidden = m.hidden, vocabulary = m.vocabulary;
  const double wide = m.intermediate > 0 ? m.intermediate : 4 * hidden;
  decoder_memory all;
  all.weights = number * (shape_of(m).parameters + (m.tied_head ? vocabulary * hidden : 0));
  all.cache = s.kv_gb * bytes_per_gb;
  // Per row: the residual stream twice, queries, keys and values, the attention's result; the gate
  // and the other half of the MLP.
  all.scratch =
      number * (s.max_running * vocabulary + decoder_prefill_rows * (6 * hidden + 2 * wide));
  return all;
}

}  // namespace troupe::planners
