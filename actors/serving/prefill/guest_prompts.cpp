#include "actors/serving/prefill/guest_prompts.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpu/inference/inference_device.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t max_held = 4096;            // prompts
constexpr std::size_t max_ordered_guests = 4096;  // of a group
constexpr std::uint32_t max_prompt_tokens = 1u << 20;
constexpr std::uint32_t page_tokens = gpu::tile_positions;
constexpr std::uint64_t block_bytes = std::uint64_t{256} << 10;  // unless a layer's are more
constexpr double rounding_up_s = 1e-6;

bool is_time(double s) {
  return std::isfinite(s) && s >= 0;
}

}  // namespace

// A setup comes from the trainer, on another host. It is checked where the guest is made, so that
// its prompts can rely on it; sizes follow from the description until the model is opened.
expected<guest_shape> shape_of(const guest_setup& s, address node) {
  using enum reason::kind;
  const auto& p = s.place;
  const auto packing = planners::packing_of(s.how);
  if (!packing) return refuse(invalid, "there is no packing rule '{}'", s.how.rule);
  if (packing->rule == planners::packing_rule::chunked &&
      (s.how.chunk == 0 || s.how.chunk % page_tokens != 0))
    return refuse(invalid, "chunks of {} tokens: must be a multiple of {}", s.how.chunk,
                  page_tokens);
  if (p.layers == 0 || (s.how.model.shape.layers > 0 &&
                        std::uint64_t{p.first_layer} + p.layers > s.how.model.shape.layers))
    return refuse(invalid, "a guest has {} layers from layer {} of '{}', which has {}", p.layers,
                  p.first_layer, s.how.model.name, s.how.model.shape.layers);
  if (!(s.how.op_ms > 0) || !is_time(p.token_s) || !is_time(p.pair_s) || !is_time(p.half_tokens))
    return refuse(invalid, "a guest needs times of its operations");
  guest_shape shape;
  shape.setup = s;
  shape.node = node;
  if (const auto layer = planners::served_layer_of(s.how.model.shape)) {
    shape.row_bytes = static_cast<std::uint64_t>(layer->hidden_bytes(1));
    shape.page_bytes = static_cast<std::uint64_t>(layer->kv_bytes * page_tokens);
  }
  return shape;
}

// ---- orders

// The order's group must have this guest at its place, with this node and these layers, and all
// layers in between without gaps: otherwise two guests would send the same pages, or none. What the
// order makes this guest allocate is bounded.
expected<void> guest_prompts::check(const prefill_order& o, const payload& body) const {
  using enum reason::kind;
  const auto& guests = o.group.guests;
  if (o.tokens == 0 || o.tokens > max_prompt_tokens || guests.empty() ||
      guests.size() > max_ordered_guests || o.guest >= guests.size())
    return refuse(malformed, "token count or guest index out of range");
  const auto& me = guests[o.guest];
  const auto& place = shape_.setup.place;
  if (me.node != shape_.node || me.first_layer != place.first_layer || me.layers != place.layers)
    return refuse(malformed, "the group has other layers here than this guest");
  std::uint64_t next_layer = 0;
  for (const auto& g : guests) {
    if (g.first_layer != next_layer || g.layers == 0)
      return refuse(malformed, "the guests' layer ranges are not contiguous");
    next_layer += g.layers;
    if (!is_time(g.token_s) || !is_time(g.pair_s) || !is_time(g.half_tokens))
      return refuse(malformed, "a guest of the group has no times");
  }
  if (!is_time(o.latest_s)) return refuse(malformed, "the order's deadline is not a finite time");
  if (const auto positions = shape_.max_tokens; positions > 0 && o.tokens > positions)
    return refuse(reason::kind::insufficient, "{} tokens: the cache beside the stage holds {}",
                  o.tokens, positions);
  const bool data = !shape_.simulated && o.guest == 0;
  if (data && body.bytes().size() != o.tokens * sizeof(std::uint32_t))
    return refuse(malformed, "{} tokens of 4 bytes; got {} bytes", o.tokens, body.bytes().size());
  if (prompts_.size() >= max_held)
    return refuse(reason::kind::insufficient, "this guest has too many prompts");
  return {};
}

/// Layers whose pages, as far as a tile of that many rows fills them, make one block: small blocks
/// cost every host on their way more than their bytes do. A simulated guest sends all layers as one
/// block.
std::uint32_t guest_prompts::layers_a_block(std::uint32_t layers, std::uint32_t rows) const {
  if (shape_.simulated || shape_.page_bytes == 0) return layers;
  const auto layer_bytes = shape_.page_bytes * ((rows + page_tokens - 1) / page_tokens);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(block_bytes / layer_bytes, 1, layers));
}

// Tiles are cut as the packing rule cuts them in the controller's plan. Guest 0 has the tokens, and
// with them the inputs of all tiles; others wait for the hidden states of the guest before them.
// Every tile gives the decoder the same number of blocks, so that their count is known before the
// first one is sent.
guest_prompts::prompt guest_prompts::begin(address gateway, const prefill_order& o,
                                           const payload& body, double now_s) const {
  prompt p;
  p.order = o;
  p.gateway = gateway;
  p.work = planners::work_of(planners::planned_group(o.group, 0), o.tokens,
                             planners::packing_of(shape_.setup.how).value());
  const auto tiles = p.work.rows.size();
  p.inputs.resize(tiles);
  std::uint32_t first = 0;
  for (std::size_t t = 0; t < tiles; ++t) {
    p.first.push_back(first);
    const auto rows = p.work.rows[t];
    if (o.guest == 0)
      p.inputs[t] = shape_.simulated
                        ? payload{}
                        : payload{body.owner(), body.bytes().subspan(first * sizeof(std::uint32_t),
                                                                     rows * sizeof(std::uint32_t))};
    first += rows;
  }
  if (o.guest > 0) p.from_before.emplace(o.name, o.guest - 1, true, shape_.simulated);
  const bool last = o.guest + 1 == o.group.guests.size();
  if (!last) p.to_next.emplace();
  const auto layers = o.group.guests[o.guest].layers;
  TROUPE_INVARIANT(!p.work.rows.empty(), "a prompt has a tile");
  p.layers_a_block = layers_a_block(layers, p.work.rows.front());
  const auto per_tile = (layers + p.layers_a_block - 1) / p.layers_a_block;
  p.blocks = static_cast<std::uint32_t>(tiles) * per_tile + (last ? 1 : 0);
  p.latest_at_s = now_s + o.latest_s;
  p.progress.name = o.name;
  p.progress.guest = o.guest;
  return p;
}

// Orders are repeated until they are answered, and answered by the present state: held, or gone
// with the reason. An order of a prompt that is over here is late.
void guest_prompts::on_order(address gateway, const prefill_order& o, const payload& body,
                             const reason& refusal, double now_s, changes& out) {
  if (const auto* known = find_in(prompts_, o.name))
    return out.send.push_back({gateway, known->progress, {}});
  prefill_progress p{.name = o.name, .guest = o.guest, .why = refusal};
  if (over_.find(o.name))
    p.why = {reason::kind::stale, "the prefill is over"};
  else if (const auto ok = check(o, body); refusal.text.empty() && !ok)
    p.why = ok.error();
  if (!p.why.text.empty()) p.now = prefill_progress::state::gone;
  out.send.push_back({gateway, p, {}});
  if (p.now == prefill_progress::state::gone) return;
  auto& fresh = prompts_.emplace(o.name, begin(gateway, o, body, now_s)).first->second;
  // Blocks that came before the order were dropped: the sender learns what is missing.
  if (fresh.from_before)
    out.send.push_back({o.group.guests[o.guest - 1].node, fresh.from_before->state(), {}});
  give_tiles(out);
}

/// In the order of the prompts: none of a later prompt before all of the earlier ones have been
/// given, since the decoder was promised the end that this order has.
void guest_prompts::give_tiles(changes& out) {
  std::vector<prompt*> all;
  for (auto& [name, p] : prompts_)
    if (p.given < p.inputs.size()) all.push_back(&p);
  std::ranges::sort(all, {}, [](const prompt* p) { return p->order.sequence; });
  for (auto* p : all) {
    for (; p->given < p->inputs.size() && p->inputs[p->given]; ++p->given) {
      const auto t = p->given;
      const auto& run = p->work.guests[p->order.guest][t];
      out.compute.push_back({.sequence = p->order.sequence,
                             .tile = t,
                             .name = p->order.name,
                             .first = p->first[t],
                             .rows = p->work.rows[t],
                             .all_rows = p->order.tokens,
                             .in = *p->inputs[t],
                             .operations = run.count,
                             .each_s = run.each_s,
                             .layers_a_block = p->layers_a_block});
    }
    if (p->given < p->inputs.size()) return;
  }
}

// ---- blocks

// Hidden states of tile i are block i. A node may have several guests and passes each block to all
// of them: blocks for another guest of the group are ignored here. Blocks of prompts that are over
// are answered, so that their sender stops; those of unknown prompts are not, since their order may
// still come.
void guest_prompts::on_block(address from, const prefill_block& b, const payload& body,
                             changes& out) {
  if (over_.find(b.name)) return out.send.push_back({from, not_needed(b), {}});
  auto* known = find_in(prompts_, b.name);
  if (!known) return;  // its order may still come
  auto& p = *known;
  const auto& o = p.order;
  if (b.what != prefill_block::kind::hidden || b.guest + 1 != o.guest) return;  // another guest's
  if (from != o.group.guests[b.guest].node || b.index >= p.inputs.size() ||
      b.blocks != p.inputs.size() || b.first != p.first[b.index] || b.count != p.work.rows[b.index])
    return void(++rejected_);
  const auto bytes = shape_.simulated ? b.bytes : b.count * shape_.row_bytes;
  const auto fresh = p.from_before->accept(b, body, bytes);
  if (!fresh) return void(++rejected_);
  out.send.push_back({from, p.from_before->state(), {}});
  if (!*fresh) return;
  p.inputs[b.index] = body;
  give_tiles(out);
}

// The decoder may end a prefill by stating that it needs no more, even while tiles are open: it
// computes the prompt by itself, or its request has ended.
void guest_prompts::on_received(address from, const blocks_received& r, double now_s,
                                changes& out) {
  const auto at = prompts_.find(r.name);
  if (at == prompts_.end() || r.guest != at->second.order.guest) return;
  auto& p = at->second;
  const auto& o = p.order;
  if (r.hidden) {
    if (!p.to_next || from != o.group.guests[o.guest + 1].node) return void(++rejected_);
    p.to_next->on_received(r, now_s);
  } else {
    if (from != o.name.decoder) return void(++rejected_);
    if (r.whole && p.done < p.inputs.size()) return end(at, out);
    p.to_decoder.on_received(r, now_s);
  }
  send_due(p, now_s, out);
  end_if_done(at);
}

// ---- results

void guest_prompts::add(prompt& p, block_sender& to, prefill_block b, payload body,
                        double now_s) const {
  b.name = p.order.name;
  b.guest = p.order.guest;
  b.index = to.size();
  b.progress = p.progress;
  to.add(std::move(b), std::move(body), now_s);
}

void guest_prompts::add_hidden(prompt& p, const guest_tile_result& r, double now_s) {
  prefill_block b;
  b.what = prefill_block::kind::hidden;
  b.blocks = static_cast<std::uint32_t>(p.inputs.size());
  b.first = p.first[r.tile];
  b.count = p.work.rows[r.tile];
  b.bytes = b.count * shape_.row_bytes;
  add(p, *p.to_next, b, r.hidden, now_s);
}

// The last page of a tile may be partly filled only at the prompt's end: tiles begin at multiples
// of a page.
void guest_prompts::add_cache(prompt& p, guest_tile_result& r, double now_s) {
  const auto& me = p.order.group.guests[p.order.guest];
  prefill_block b;
  b.what = prefill_block::kind::cache;
  b.blocks = p.blocks;
  b.first = p.first[r.tile] / page_tokens;
  b.count = (p.first[r.tile] + p.work.rows[r.tile] + page_tokens - 1) / page_tokens - b.first;
  for (std::uint32_t l = 0, i = 0; l < me.layers; l += b.layers, ++i) {
    b.first_layer = me.first_layer + l;
    b.layers = std::min(p.layers_a_block, me.layers - l);
    b.bytes = std::uint64_t{b.layers} * b.count * shape_.page_bytes;
    add(p, p.to_decoder, b, i < r.pages.size() ? std::move(r.pages[i]) : payload{}, now_s);
  }
}

void guest_prompts::add_last(prompt& p, const guest_tile_result& r, double now_s) {
  prefill_block b;
  b.what = prefill_block::kind::last;
  b.blocks = p.blocks;
  b.first = p.order.tokens - 1;
  b.count = 1;
  b.bytes = shape_.row_bytes;
  payload body;
  if (const auto all = r.hidden.bytes(); !shape_.simulated)
    body = {r.hidden.owner(), all.subspan(all.size() - shape_.row_bytes)};
  add(p, p.to_decoder, b, std::move(body), now_s);
}

// Results come in the order of the tiles. Progress is updated before the blocks are made, which
// carry it: the decoder learns the begin from the first guest's blocks and the end from the last
// guest's.
void guest_prompts::on_result(guest_tile_result r, double now_s, changes& out) {
  const auto at = prompts_.find(r.name);
  if (at == prompts_.end() || r.tile != at->second.done) return;
  auto& p = at->second;
  if (!r.why.text.empty()) {
    report_gone(p, r.why, out);
    return end(at, out);
  }
  p.inputs[r.tile] = payload{};
  if (p.done++ == 0) p.begun_s = now_s - r.took_s;
  p.progress.begun_ago_s = now_s - p.begun_s;
  p.progress.computed_s += r.computed_s;
  p.progress.steps += r.steps;
  p.progress.yields += r.yields;
  if (p.from_before) p.progress.hidden_bytes = p.from_before->bytes();
  const bool all = p.done == p.inputs.size();
  if (all) p.progress.now = prefill_progress::state::ended;
  if (p.to_next) add_hidden(p, r, now_s);
  add_cache(p, r, now_s);
  if (all && !p.to_next) add_last(p, r, now_s);
  if (all) out.send.push_back({p.gateway, p.progress, {}});
  send_due(p, now_s, out);
}

// ---- ends and times

void guest_prompts::send_due(prompt& p, double now_s, changes& out) const {
  const auto pass_on = [&](block_sender& from, address to) {
    for (auto& b : from.take_due(now_s)) out.send.push_back({to, b.header, std::move(b.body)});
  };
  if (p.to_next) pass_on(*p.to_next, p.order.group.guests[p.order.guest + 1].node);
  pass_on(p.to_decoder, p.order.name.decoder);
}

/// It has been computed, and all of it has arrived.
void guest_prompts::end_if_done(prompt_map::iterator at) {
  const auto& p = at->second;
  const bool arrived = p.to_decoder.done() && (!p.to_next || p.to_next->done());
  if (!arrived || p.done < p.inputs.size()) return;
  over_.add(at->first, p.order.guest);
  prompts_.erase(at);
}

// Its tiles leave the engine, which makes room for those of the next prompt.
void guest_prompts::end(prompt_map::iterator at, changes& out) {
  out.forget.push_back(at->first);
  over_.add(at->first, at->second.order.guest);
  prompts_.erase(at);
  give_tiles(out);
}

void guest_prompts::report_gone(const prompt& p, const reason& why, changes& out) const {
  auto gone = p.progress;
  gone.now = prefill_progress::state::gone;
  gone.why = why;
  out.send.push_back({p.gateway, gone, {}});
}

void guest_prompts::on_cancel(address gateway, const prefill_name& n, changes& out) {
  prefill_progress gone;
  gone.name = n;
  gone.now = prefill_progress::state::gone;
  const auto* old = over_.find(n);
  if (old) gone.guest = *old;
  const auto at = prompts_.find(n);
  if (at != prompts_.end()) {
    gone = at->second.progress;
    gone.now = prefill_progress::state::gone;
    end(at, out);
  } else if (!old) {
    // An order that comes later is answered as over. Which number this guest has is unknown.
    return over_.add(n, 0);
  }
  out.send.push_back({gateway, gone, {}});
}

// Late prompts are ended after the loop, since that changes the map.
void guest_prompts::on_time(double now_s, changes& out) {
  std::vector<prefill_name> late;
  for (auto& [name, p] : prompts_) {
    if (p.latest_at_s <= now_s + rounding_up_s)
      late.push_back(name);
    else
      send_due(p, now_s, out);
  }
  for (const auto& name : late) {
    const auto at = prompts_.find(name);
    report_gone(at->second, {reason::kind::unavailable, "its time was over"}, out);
    end(at, out);
  }
}

double guest_prompts::next_s() const {
  double next = never;
  for (const auto& [name, p] : prompts_) {
    next = std::min({next, p.latest_at_s, p.to_decoder.next_due_s()});
    if (p.to_next) next = std::min(next, p.to_next->next_due_s());
  }
  return next;
}

}  // namespace troupe::actors
