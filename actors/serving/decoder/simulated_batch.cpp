#include "actors/serving/decoder/simulated_batch.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/random.hpp"
#include "messages/base/units.hpp"

namespace troupe::actors {

// A function of seed and position alone, as the choice of a real device is for given logits:
// another decoder that continues a completion chooses the same tokens.
weighed_token simulated_token(const gpu::next_token& n, std::uint32_t vocabulary) {
  random_source random{n.how.seed ^ (n.position * 0x9e3779b97f4a7c15ULL)};
  return {static_cast<std::uint32_t>(random.below(std::max(vocabulary, 1u))), 0};
}

// The sizes are those that a real device would have: the cache's pages follow from kv_gb and the
// served layers, so that requests wait for pages in simulations as they do on GPUs.
void simulated_batch::open(std::function<void(expected<decoder_model>)> done) {
  const auto& shape = o_.what.model.shape;
  const auto layer = planners::served_layer_of(shape);
  if (!layer) return done(refuse(layer.error()));
  layer_ = *layer;
  rate_ = planners::prefill_rate_of(layer_, o_.gpu);
  decoder_model m;
  m.positions = shape.sequence;
  m.vocabulary = std::max(shape.vocabulary, 1u);
  m.layers = shape.layers;
  m.page_bytes = static_cast<std::uint64_t>(layer_.kv_bytes * gpu::tile_positions);
  m.hidden_bytes = static_cast<std::uint64_t>(layer_.hidden_bytes(1));
  m.pages = static_cast<std::uint32_t>(std::min(
      o_.what.kv_gb * bytes_per_gb / (static_cast<double>(m.page_bytes) * std::max(m.layers, 1u)),
      1e9));
  m.simulated = true;
  // Without values: only their keys matter, by which pages of a cache are theirs.
  for (const auto& a : o_.what.adapters.value_or(std::vector<served_adapter>{})) {
    gpu::adapter made;
    made.key = a.name;
    m.adapters.emplace(a.name, std::make_shared<const gpu::adapter>(std::move(made)));
  }
  o_.after(o_.start_s * (o_.slowdown ? o_.slowdown() : 1),
           [m, done = std::move(done)] { done(m); });
}

// A decode reads the caches of all of its sequences: its time depends on the sum of their
// positions. A chunk's time depends on its rows and on the positions before it.
double simulated_batch::time_of(const gpu::batch_round& r) const {
  double s = 0, cached = 0;
  for (const auto& d : r.decode) cached += d.row.position;
  const auto layers = layer_.layers;
  if (!r.decode.empty())
    s += planners::decode_s(layer_, o_.gpu, layers, static_cast<double>(r.decode.size()), cached);
  for (const auto& c : r.prefill)
    s += planners::prefill_s(rate_, layers, static_cast<double>(c.tokens.size()), c.first);
  return s * (o_.slowdown ? o_.slowdown() : 1);
}

gpu::batch_result simulated_batch::choose(gpu::sequence_id s, const gpu::next_token& n) const {
  return {s, {}, generated_token{simulated_token(n, o_.what.model.shape.vocabulary), {}}, {}, {}};
}

// The results are known at once; only their delivery waits for the round's time.
void simulated_batch::execute(gpu::batch_round r,
                              std::function<void(expected<std::vector<gpu::batch_result>>)> done) {
  std::vector<gpu::batch_result> results;
  for (const auto& d : r.decode)
    if (d.next) results.push_back(choose(d.row.sequence, *d.next));
  for (const auto& c : r.prefill) {
    gpu::batch_result scored{c.sequence, {}, {}, {}, {}};
    for (const auto t : c.scored) scored.scored.push_back({{t, 0}, {}});
    if (!scored.scored.empty()) results.push_back(std::move(scored));
    if (c.next) results.push_back(choose(c.sequence, *c.next));
  }
  for (const auto& l : r.last) results.push_back(choose(l.sequence, l.next));
  o_.after(time_of(r), [results = std::move(results), done = std::move(done)]() mutable {
    done(std::move(results));
  });
}

}  // namespace troupe::actors
