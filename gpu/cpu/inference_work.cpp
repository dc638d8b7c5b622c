#include "gpu/cpu/inference_work.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "gpu/cpu/kernels/matrix.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::cpu {

cpu_inference_device::tiles::tiles(cpu_inference_device& d, std::size_t rows, std::size_t tile_rows,
                                   std::size_t sublayers)
    : device_{d},
      rows_{rows},
      tile_rows_{tile_rows},
      tiles_{(rows + tile_rows - 1) / tile_rows},
      steps_{tiles_ * sublayers},
      width_{d.spec_.model.hidden},
      hidden_{d.memory_.zeros<float>(tiles_ * tile_rows * width_)} {}

// A work is cut into steps of one tile in one sublayer, so that its caller can interleave requests
// and bound the time for which a decode waits behind a prefill.
std::uint32_t cpu_inference_device::tiles::steps_left() const {
  return static_cast<std::uint32_t>(steps_ - next_);
}

// Each step prepares its thread, because successive steps may run on different threads and the
// floating-point control bits belong to the thread.
void cpu_inference_device::tiles::step() {
  prepare_thread();
  run(next_ / tiles_, next_ % tiles_);
  ++next_;
}

void cpu_inference_device::tiles::enter(const payload& in) {
  if (in.bytes().empty()) return;
  std::memcpy(hidden_.get(), in.bytes().data(), rows_ * width_ * sizeof(float));
}

cpu_inference_device::prefill_work::prefill_work(cpu_inference_device& d,
                                                 const kv_cache::sequence& pages,
                                                 std::uint32_t first, std::size_t rows,
                                                 std::vector<std::uint32_t> tokens,
                                                 const payload& in, adapter_ref adapter)
    : tiles{d, rows, tile_positions, d.spec_.sublayers},
      pages_{pages},
      first_{first},
      tokens_{std::move(tokens)},
      adapter_{std::move(adapter)} {
  if (tokens_.empty()) enter(in);
}

// The part's first sublayer embeds the tile just before using it. Even sublayers of the model are
// attentions and odd ones MLPs; a part may begin with either.
void cpu_inference_device::prefill_work::run(std::size_t sublayer, std::size_t tile) {
  auto& maths = device_.maths_;
  const auto begin = tile * tile_rows_;
  if (sublayer == 0 && !tokens_.empty())
    for (auto i = begin; i < std::min(begin + tile_rows_, rows_); ++i)
      maths.embed(tokens_[i], first_ + static_cast<std::uint32_t>(i),
                  hidden(tile) + (i - begin) * width_);
  // All rows of a prefill are one sequence's.
  const adapted_rows all{0, rows_of(tile), adapter_.get()};
  const inference_maths::row_groups groups{&all, adapter_ ? 1u : 0u};
  const auto i = device_.spec_.first_sublayer + static_cast<std::uint32_t>(sublayer);
  if (i % 2 == 0)
    attend(i, tile, groups);
  else
    maths.mlp(i, hidden(tile), tile_rows_, groups);
}

// Keys and values of the tile are stored before its queries attend, since each position attends to
// itself. The pages end with the tile's own page: later pages hold no position that it may see.
// Tiles of a sublayer run in order, so the earlier pages are complete.
void cpu_inference_device::prefill_work::attend(std::uint32_t sublayer, std::size_t tile,
                                                inference_maths::row_groups groups) {
  auto& maths = device_.maths_;
  const auto begin = tile * tile_rows_, count = std::min(tile_rows_, rows_ - begin);
  std::vector<std::uint32_t> positions(count);
  for (std::size_t i = 0; i < count; ++i)
    positions[i] = first_ + static_cast<std::uint32_t>(begin + i);
  const auto* qkv =
      maths.queries_keys_values(sublayer, hidden(tile), tile_rows_, positions, groups);
  const auto pages = device_.keys(pages_, sublayer, positions[0] / tile_positions + 1);
  auto& attention = maths.attention();
  for (std::size_t i = 0; i < count; ++i)
    attention.store(qkv + i * attention.row_values(), positions[i], pages.back());
  attention.tile(qkv, pages, maths.attended(), maths.team());
  maths.leave_attention(sublayer, hidden(tile), tile_rows_, groups);
}

cpu_inference_device::decode_work::decode_work(cpu_inference_device& d,
                                               std::vector<decode_row> rows,
                                               std::vector<const kv_cache::sequence*> pages,
                                               const payload& in)
    : tiles{d, rows.size(), decode_rows, d.spec_.sublayers},
      rows_here_{std::move(rows)},
      pages_{std::move(pages)} {
  if (!d.spec_.embeds) enter(in);
}

namespace {

/// The rows of a tile with adapters: those of one that follow each other are a group.
std::vector<adapted_rows> groups_of(std::span<const decode_row> rows) {
  std::vector<adapted_rows> groups;
  for (std::size_t i = 0, end = 0; i < rows.size(); i = end) {
    const auto* by = rows[i].adapter.get();
    for (end = i + 1; end < rows.size() && rows[end].adapter.get() == by;) ++end;
    if (by) groups.push_back({i, end - i, by});
  }
  return groups;
}

}  // namespace

void cpu_inference_device::decode_work::run(std::size_t sublayer, std::size_t tile) {
  auto& maths = device_.maths_;
  const auto begin = tile * tile_rows_;
  if (sublayer == 0 && device_.spec_.embeds)
    for (std::size_t i = 0; i < rows_of(tile); ++i)
      maths.embed(rows_here_[begin + i].token, rows_here_[begin + i].position,
                  hidden(tile) + i * width_);
  const auto groups = groups_of(std::span{rows_here_}.subspan(begin, rows_of(tile)));
  const auto i = device_.spec_.first_sublayer + static_cast<std::uint32_t>(sublayer);
  if (i % 2 == 0)
    attend(i, tile, groups);
  else
    maths.mlp(i, hidden(tile), rows_of(tile), groups);
}

// Rows of a batch belong to different sequences of different lengths, so the products are shared by
// all rows and attention is computed row by row over each sequence's own pages.
void cpu_inference_device::decode_work::attend(std::uint32_t sublayer, std::size_t tile,
                                               inference_maths::row_groups groups) {
  auto& maths = device_.maths_;
  const auto begin = tile * tile_rows_, count = rows_of(tile);
  std::vector<std::uint32_t> positions(count);
  for (std::size_t i = 0; i < count; ++i) positions[i] = rows_here_[begin + i].position;
  const auto* qkv = maths.queries_keys_values(sublayer, hidden(tile), count, positions, groups);
  auto& attention = maths.attention();
  const std::size_t queries = device_.spec_.model.query_width();
  std::vector<paged_attention::query> all;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* row = qkv + i * attention.row_values();
    auto pages = device_.keys(*pages_[begin + i], sublayer, positions[i] / tile_positions + 1);
    attention.store(row, positions[i], pages.back());
    all.push_back({row, positions[i], std::move(pages), maths.attended() + i * queries});
  }
  attention.rows(all, maths.team());
  maths.leave_attention(sublayer, hidden(tile), count, groups);
}

// Tiles have the size of a decode's, for the kernel of few rows. Logits have the memory of whole
// tiles because the product writes through to few_rows rows.
cpu_inference_device::head_work::head_work(cpu_inference_device& d, std::size_t rows,
                                           const payload& in)
    : tiles{d, rows, decode_rows, 1},
      logits_{d.memory_.take<float>(tiles_ * tile_rows_ * d.spec_.model.vocabulary)} {
  enter(in);
}

void cpu_inference_device::head_work::run(std::size_t, std::size_t tile) {
  device_.maths_.head(hidden(tile), rows_of(tile),
                      logits_.get() + tile * tile_rows_ * device_.spec_.model.vocabulary);
}

payload cpu_inference_device::head_work::result() {
  return as_payload(logits_, rows_ * device_.spec_.model.vocabulary);
}

// A chunk begins at a page's first position, because a tile of queries writes exactly one page. All
// checks come before the work is created: steps cannot fail.
expected<std::unique_ptr<inference_work>> cpu_inference_device::prefill(
    sequence_id s, std::uint32_t first, const payload& in, const adapter_ref& adapter) {
  if (first % tile_positions != 0)
    return refuse(reason::kind::invalid, "a chunk begins at position {}, expected a multiple of {}",
                  first, tile_positions);
  if (spec_.sublayers == 0)
    return refuse(reason::kind::invalid, "a part without layers has no prefill");
  std::size_t rows = in.bytes().size() / sizeof(std::uint32_t);
  std::vector<std::uint32_t> tokens;
  if (spec_.embeds) {
    if (rows == 0) return refuse(reason::kind::invalid, "a chunk needs at least one token");
    tokens = in.values<std::uint32_t>();
    if (auto ok = check_tokens(tokens); !ok) return refuse(ok.error());
  } else {
    const auto given = hidden_rows(in);
    if (!given) return refuse(given.error());
    rows = *given;
  }
  if (rows > spec_.model.positions - std::min(first, spec_.model.positions))
    return refuse(reason::kind::invalid, "{} positions from {} on are more than the {} of {}", rows,
                  first, spec_.model.positions, spec_.model.name);
  const auto pages = pages_of(s, first + static_cast<std::uint32_t>(rows));
  if (!pages) return refuse(pages.error());
  if (auto ok = prepare(adapter); !ok) return refuse(ok.error());
  return std::make_unique<prefill_work>(*this, **pages, first, rows, std::move(tokens), in,
                                        adapter);
}

// A sequence may occur once per decode: its second position would need the first one's result.
expected<std::unique_ptr<inference_work>> cpu_inference_device::decode(
    const std::vector<decode_row>& rows, const payload& in) {
  if (rows.empty() || spec_.sublayers == 0)
    return refuse(reason::kind::invalid, "there is nothing to decode");
  std::vector<const kv_cache::sequence*> pages;
  std::set<sequence_id> different;
  for (const auto& r : rows) {
    if (spec_.embeds)
      if (auto ok = check_tokens({&r.token, 1}); !ok) return refuse(ok.error());
    if (!different.insert(r.sequence).second)
      return refuse(reason::kind::invalid, "sequence {} is twice in one decode", r.sequence);
    if (r.position >= spec_.model.positions)
      return refuse(reason::kind::invalid, "position {} is beyond the {} of {}", r.position,
                    spec_.model.positions, spec_.model.name);
    const auto found = pages_of(r.sequence, r.position + 1);
    if (!found) return refuse(found.error());
    if (auto ok = prepare(r.adapter); !ok) return refuse(ok.error());
    pages.push_back(*found);
  }
  if (!spec_.embeds) {
    const auto given = hidden_rows(in);
    if (!given) return refuse(given.error());
    if (*given != rows.size())
      return refuse(reason::kind::invalid, "{} hidden states for {} sequences", *given,
                    rows.size());
  }
  return std::make_unique<decode_work>(*this, rows, std::move(pages), in);
}

expected<std::unique_ptr<inference_work>> cpu_inference_device::head(const payload& in) {
  if (!spec_.predicts) return refuse(reason::kind::invalid, "this part of the model has no head");
  const auto rows = hidden_rows(in);
  if (!rows) return refuse(rows.error());
  return std::make_unique<head_work>(*this, *rows, in);
}

}  // namespace troupe::gpu::cpu
