#include "studies/prefill_simulation.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "messages/base/units.hpp"
#include "messages/codec/codec.hpp"
#include "messages/domain/served_bytes.hpp"
#include "planners/serving/decoder_memory.hpp"

namespace troupe::studies {

namespace {

std::string name_of_decoder_node(const troupe::cluster& c, std::uint32_t datacenter) {
  return c.datacenters[datacenter].name + "-decoder";
}

std::uint32_t longest_context(const prefill_study& study) {
  std::uint32_t max = 1;
  for (const auto& p : study.prompts)
    max = std::max(max, p.prompt_tokens + std::max(1u, p.generated_tokens));
  return max;
}

/// So that no request waits for pages: studies are about prefills.
serving decoder_of(const job_spec& training, const prefill_study& study) {
  constexpr std::uint32_t max_sequences = 65'536;
  serving s;
  s.model = training.pipeline.bubbles->model;
  s.context = std::min(longest_context(study), s.model.shape.sequence);
  s.max_running = 4096;
  s.max_sequences = max_sequences;
  s.fallback = false;
  // Without a limit of time a saturated run would promise nothing that waits for long.
  constexpr double no_limit_s = 3600;
  s.ttft_s = study.play.ttft_s > 0 ? study.play.ttft_s : no_limit_s;
  const double at_once = study.play.saturated > 0 ? double(study.play.saturated) : 512;
  s.kv_gb = at_once * cache_pages_of(s.context) * cache_page_bytes(s.model.shape) / bytes_per_gb;
  return s;
}

}  // namespace

troupe::cluster with_decoders(const troupe::cluster& c, const job_spec& training,
                              const prefill_study& study) {
  auto out = c;
  const auto s = decoder_of(training, study);
  auto gpu = c.gpus[c.nodes.front().gpu];
  gpu.memory_gb = 1.1 * planners::decoder_memory_of(s).total() * (1 + c.settings.memory_headroom) /
                  bytes_per_gb;
  // A slot job's GPUs have no rates: its decoders take no time.
  if (!(gpu.fp16_tflops > 0)) gpu.fp16_tflops = gpu.fp32_tflops = 1e9;
  if (!(gpu.memory_gbytes_s > 0)) gpu.memory_gbytes_s = 1e9;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d) {
    gpu.name = name_of_decoder_node(c, d);
    out.gpus.push_back(gpu);
    const auto like = std::ranges::find(c.nodes, d, &node::datacenter);
    auto n = like == c.nodes.end() ? c.nodes.front() : *like;
    n.name = name_of_decoder_node(c, d);
    n.datacenter = d;
    n.gpu = static_cast<gpu_index>(out.gpus.size() - 1);
    n.gpus = 1;
    out.nodes.push_back(std::move(n));
    out.fronts.push_back({c.datacenters[d].name + "-front", d, ""});
  }
  return out;
}

std::vector<job_spec> decoder_jobs(const troupe::cluster& with, const job_spec& training,
                                   const prefill_study& study) {
  std::vector<job_spec> all;
  for (std::uint32_t d = 0; d < with.datacenters.size(); ++d) {
    auto& job = all.emplace_back();
    job.name = job.required_gpu_type = name_of_decoder_node(with, d);
    job.serve = decoder_of(training, study);
  }
  return all;
}

counted_iterations counted_of(std::uint64_t iterations) {
  constexpr std::uint64_t before = 2, after = 3, few = 10;
  if (iterations < few)
    return {std::min(before, iterations - std::min<std::uint64_t>(1, iterations)), iterations};
  return {before, iterations - after};
}

prefill_player::prefill_player(prefill_study study, const job_spec& training)
    : study_{std::move(study)},
      model_{training.pipeline.bubbles->model.name},
      iterations_{training.iterations} {
  study_.play.model = model_;
}

void prefill_player::watch(address from, const frame& f) {
  const auto e = peek(f.header.bytes());
  if (!e) return;
  const auto is = [&](std::uint16_t type) { return e->type == type; };
  if (!is(type_id<bubble_offer>) && !is(type_id<stage_signal>) && !is(type_id<prefill_block>) &&
      !is(type_id<blocks_received>) && !is(type_id<stage_report>))
    return;
  const auto decoded = decode(f.header.bytes());
  if (!decoded) return;
  const auto& m = decoded->second;
  if (const auto* o = std::get_if<bubble_offer>(&m)) {
    for (const auto& s : o->stages) stages_[e->to].insert(s.stage);
    if (!o->groups.empty()) result_.offers[e->to] = *o;
  } else if (const auto* s = std::get_if<stage_signal>(&m)) {
    const auto first = first_.try_emplace(s->stage, s->iteration).first->second;
    if (s->iteration > first) lend_.insert(s->stage);
    begin_if_known();
    if (begun_ && s->iteration >= counted_of(iterations_).end) end_offers();
  } else if (const auto* b = std::get_if<prefill_block>(&m)) {
    on_block(from, *b);
  } else if (const auto* r = std::get_if<blocks_received>(&m)) {
    if (r->hidden && r->whole) on_hidden(*r);
  } else if (const auto* done = std::get_if<stage_report>(&m)) {
    on_report(*done);
  }
}

/// The last tile has arrived at the next guest, if it was computed.
void prefill_player::on_hidden(const blocks_received& r) {
  const auto at = hop_sent_s_.find(r.name);
  if (at == hop_sent_s_.end()) return;
  const auto sent = at->second.find(r.guest);
  if (sent == at->second.end()) return;
  hop_s_[r.name] += cluster_->world().now_s() - sent->second;
  at->second.erase(sent);
  if (!at->second.empty()) return;
  hop_sent_s_.erase(at);
}

/// It may be repeated, and pass several gateways.
void prefill_player::on_report(const stage_report& r) {
  if (r.tasks.empty() || !first_.contains(r.name)) return;
  auto& last = reported_[r.name];
  if (r.iteration <= last) return;
  last = r.iteration;
  auto& device = result_.devices[r.name];
  device.tasks.insert(device.tasks.end(), r.tasks.begin(), r.tasks.end());
  if (r.bubbles) device.guest_s += r.bubbles->guest_s;
}

/// Where a guest sends it: on the way a gateway may pass it on.
void prefill_player::on_block(address from, const prefill_block& b) {
  constexpr std::size_t remembered = 2000;
  if (!cluster_ || !is_node(*watched_, from)) return;
  const bool last_hop = b.what == prefill_block::kind::hidden && b.index + 1 == b.blocks;
  if (last_hop) hop_sent_s_[b.name].try_emplace(b.guest, cluster_->world().now_s());
  ++result_.blocks;
  result_.block_bytes += b.bytes;
  const auto [at, fresh] = sent_.try_emplace(b.name);
  if (fresh) sent_order_.push_back(b.name);
  const bool first =
      at->second.insert({static_cast<std::uint32_t>(b.what), b.guest, b.index}).second;
  if (!first) ++result_.resent_blocks;
  if (sent_order_.size() <= remembered) return;
  sent_.erase(sent_order_.front());
  sent_order_.pop_front();
}

void prefill_player::join(virtual_cluster& v, const troupe::cluster& c) {
  cluster_ = &v;
  watched_ = &c;
  fronts_ = c.fronts.size();
  result_.decoders = static_cast<std::uint32_t>(fronts_);
  std::vector<trace_player::front_door> doors;
  for (std::uint32_t f = 0; f < fronts_; ++f)
    doors.push_back({[&v, f](model_prompt p, completion_listener l) {
                       return v.front(f).submit(std::move(p), std::move(l));
                     },
                     [&v, f](std::uint64_t number) { v.front(f).cancel(number); }});
  player_ = std::make_unique<trace_player>(
      study_.play, study_.prompts, std::move(doors),
      trace_player::clock{
          [&v] { return v.world().now_s(); },
          [&v](double at_s, std::function<void()> what) { v.world().at(at_s, std::move(what)); }});
}

bool prefill_player::ready() const {
  for (std::uint32_t f = 0; f < fronts_; ++f) {
    const auto view = cluster_->front(f).view();
    const auto m = view.models.find(model_);
    if (m == view.models.end() || m->second.decoders < fronts_) return false;
  }
  return true;
}

/// The trace begins once every stage lends its device, which none does in its first iteration.
void prefill_player::begin_if_known() {
  if (begun_ || !cluster_ || stages_.empty()) return;
  for (const auto& [gateway, stages] : stages_)
    if (!std::ranges::includes(lend_, stages)) return;
  begun_ = true;
  auto& world = cluster_->world();
  // The signals have to arrive.
  constexpr double arrive_s = 0.01;
  world.at(world.now_s() + arrive_s, [this] { player_->begin(); });
}

simulated_prefills prefill_player::result() const {
  auto r = result_;
  r.requests = player_->requests();
  r.all_offered = player_->all_offered();
  for (const auto& [name, s] : hop_s_) r.hops_s.push_back(s);
  for (const auto& [gateway, o] : r.offers)
    for (const auto& g : o.groups)
      for (const auto& guest : g.guests) r.devices[guest.stage].node = node_of(guest.node);
  const auto view = cluster_->front(0).view();
  if (const auto m = view.models.find(model_); m != view.models.end())
    r.pages_leaked = m->second.pages - m->second.free_pages;
  return r;
}

}  // namespace troupe::studies
