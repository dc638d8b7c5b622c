#include "gpu/cpu/inference_device.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <set>

#include "gpu/cpu/kernels/matrix.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

expected<std::unique_ptr<inference_device>> make_cpu_inference_device(const inference_spec& s) {
  if (s.threads < 1 || s.threads > max_inference_threads)
    return refuse(reason::kind::invalid, "threads: found {}, expected 1 to {}", s.threads,
                  max_inference_threads);
  const auto end = 1ull * s.first_sublayer + s.sublayers, all = 2ull * s.model.layers;
  if (end > all)
    return refuse(reason::kind::invalid, "sublayers {} to {} were requested, but {} has {}",
                  s.first_sublayer, end, s.model.name, all);
  auto maths = cpu::inference_maths::make(s);
  if (!maths) return refuse(maths.error());
  return std::make_unique<cpu::cpu_inference_device>(s, std::move(*maths));
}

namespace cpu {

cpu_inference_device::cpu_inference_device(const inference_spec& s, inference_maths maths)
    : spec_{s}, maths_{std::move(maths)}, cache_{s.model, s.pages, attention_layers()} {}

std::uint32_t cpu_inference_device::attention_layers() const {
  return (spec_.first_sublayer + spec_.sublayers + 1) / 2 - first_attention();
}

// Three refusals: too long for the model is final, too few free pages may pass, and so may a host
// without memory.
expected<void> cpu_inference_device::reserve(sequence_id s, std::uint32_t positions) {
  if (positions > spec_.model.positions)
    return refuse(reason::kind::invalid, "{} positions are more than the {} of {}", positions,
                  spec_.model.positions, spec_.model.name);
  try {
    if (cache_.reserve(s, positions)) return {};
  } catch (const std::bad_alloc&) {
    return refuse(reason::kind::out_of_memory,
                  "this host has no memory for another page of the cache; {} of {} are used",
                  spec_.pages - cache_.free_pages(), spec_.pages);
  }
  return refuse(reason::kind::insufficient, "{} positions need {} pages; {} of {} are free",
                positions, pages_for(positions), cache_.free_pages(), spec_.pages);
}

expected<void> cpu_inference_device::keep(sequence_id s, std::uint32_t page, page_name name) {
  if (cache_.keep(s, page, name)) return {};
  return refuse(reason::kind::invalid, "page {} of sequence {} was to be kept, and it has none",
                page, s);
}

expected<void> cpu_inference_device::share(sequence_id s, std::span<const page_name> names) {
  if (cache_.share(s, names)) return {};
  return refuse(reason::kind::invalid,
                "sequence {} was to begin with {} pages, and not all of them are known", s,
                names.size());
}

expected<void> cpu_inference_device::check_tokens(std::span<const std::uint32_t> tokens) const {
  for (const auto t : tokens)
    if (t >= spec_.model.vocabulary)
      return refuse(reason::kind::invalid, "token {} is beyond the vocabulary of {}", t,
                    spec_.model.vocabulary);
  return {};
}

expected<void> cpu_inference_device::prepare(const adapter_ref& a) {
  if (!a) return {};
  if (!a->fits(spec_.model))
    return refuse(reason::kind::invalid, "the adapter {} is of the model {}, and this one is {}",
                  a->folder.string(), a->model.name, spec_.model.name);
  maths_.prepare(*a);
  return {};
}

expected<std::size_t> cpu_inference_device::hidden_rows(const payload& in) const {
  const auto row = spec_.model.hidden * sizeof(float);
  const auto bytes = in.bytes().size();
  if (bytes == 0 || bytes % row != 0)
    return refuse(reason::kind::invalid, "{} bytes are no hidden states of {} each", bytes, row);
  return bytes / row;
}

expected<const kv_cache::sequence*> cpu_inference_device::pages_of(sequence_id s,
                                                                   std::uint32_t end) const {
  const auto* pages = cache_.find(s);
  if (!pages || pages->size() < pages_for(end))
    return refuse(reason::kind::invalid,
                  "sequence {} has pages for {} positions, but {} are needed", s,
                  pages ? pages->size() * tile_positions : 0, end);
  return pages;
}

// Pages are not contiguous in memory, so attention gets a pointer to each.
std::vector<float*> cpu_inference_device::keys(const kv_cache::sequence& s, std::uint32_t sublayer,
                                               std::size_t count) const {
  std::vector<float*> all(count);
  for (std::size_t p = 0; p < count; ++p)
    all[p] = cache_.keys(s[p], sublayer / 2 - first_attention());
  return all;
}

expected<const kv_cache::sequence*> cpu_inference_device::check_kv(sequence_id s,
                                                                   std::uint32_t first_layer,
                                                                   std::uint32_t layers,
                                                                   std::uint32_t first_page,
                                                                   std::uint32_t pages) const {
  const auto end = first_attention() + attention_layers();
  if (first_layer < first_attention() || first_layer > end || layers > end - first_layer)
    return refuse(reason::kind::invalid,
                  "{} layers from {} on were requested, but the cache has {} to {}", layers,
                  first_layer, first_attention(), end);
  const auto* all = cache_.find(s);
  const auto have = all ? all->size() : 0;
  if (first_page > have || pages > have - first_page)
    return refuse(reason::kind::invalid,
                  "{} pages from {} on were requested, but sequence {} has {}", pages, first_page,
                  s, have);
  return all;
}

// Pages travel in the order of layers, then pages, keys and values of a page together; put_kv reads
// the same order, so a receiver with other layers can ask for just those that it has.
expected<payload> cpu_inference_device::take_kv(sequence_id s, std::uint32_t first_layer,
                                                std::uint32_t layers, std::uint32_t first_page,
                                                std::uint32_t pages) const {
  const auto all = check_kv(s, first_layer, layers, first_page, pages);
  if (!all) return refuse(all.error());
  const auto n = cache_.layer_values();
  std::vector<std::byte> out(1ull * layers * pages * n * sizeof(float));
  auto* to = out.data();
  for (std::uint32_t l = 0; l < layers; ++l)
    for (std::uint32_t p = 0; p < pages; ++p, to += n * sizeof(float))
      std::memcpy(to, cache_.keys((**all)[first_page + p], first_layer + l - first_attention()),
                  n * sizeof(float));
  return payload{std::move(out)};
}

expected<void> cpu_inference_device::put_kv(sequence_id s, std::uint32_t first_layer,
                                            std::uint32_t layers, std::uint32_t first_page,
                                            std::uint32_t pages, const payload& in) {
  const auto all = check_kv(s, first_layer, layers, first_page, pages);
  if (!all) return refuse(all.error());
  const auto n = cache_.layer_values();
  if (in.bytes().size() != 1ull * layers * pages * n * sizeof(float))
    return refuse(reason::kind::invalid, "{} bytes of keys and values, expected {}",
                  in.bytes().size(), 1ull * layers * pages * n * sizeof(float));
  const auto* from = in.bytes().data();
  for (std::uint32_t l = 0; l < layers; ++l)
    for (std::uint32_t p = 0; p < pages; ++p, from += n * sizeof(float))
      std::memcpy(cache_.keys((**all)[first_page + p], first_layer + l - first_attention()), from,
                  n * sizeof(float));
  return {};
}

}  // namespace cpu

}  // namespace troupe::gpu
