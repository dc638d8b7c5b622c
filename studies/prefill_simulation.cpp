#include "studies/prefill_simulation.hpp"

#include <algorithm>
#include <utility>

#include "actors/worlds/virtual_cluster.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/units.hpp"
#include "messages/codec/codec.hpp"
#include "messages/domain/served_bytes.hpp"
#include "planners/serving/decoder_memory.hpp"

namespace troupe::studies {

namespace {

std::string name_of_decoder_node(const troupe::cluster& c, std::uint32_t datacenter) {
  return c.datacenters[datacenter].name + "-decoder";
}

/// A decoder with enough KV pages for all requests: studies measure prefills.
serving decoder_of(const job_spec& training, const prefill_study& study) {
  std::uint32_t longest = 1;
  for (const auto& p : study.prompts)
    longest = std::max(longest, p.prompt_tokens + std::max(1u, p.generated_tokens));
  serving s;
  s.model = training.pipeline.bubbles->model;
  s.context = std::min(longest, s.model.shape.sequence);
  s.max_running = 4096;
  s.max_sequences = 65'536;
  s.fallback = false;
  // An hour stands for no limit. With the usual two seconds a saturated run, where most prompts
  // wait longer, would have every promise refused.
  constexpr double no_limit_s = 3600;
  s.ttft_s = study.play.ttft_s > 0 ? study.play.ttft_s : no_limit_s;
  const double at_once = study.play.saturated > 0 ? double(study.play.saturated) : 512;
  s.kv_gb = at_once * cache_pages_of(s.context) * cache_page_bytes(s.model.shape) / bytes_per_gb;
  return s;
}

}  // namespace

// A decoder's GPU has a type of its own, as required_gpu_type of its job, and memory for its cache
// with the cluster's headroom.
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
    job.name = job.limits.required_gpu_type = name_of_decoder_node(with, d);
    job.serve = decoder_of(training, study);
  }
  return all;
}

// The last three iterations are left for requests to end in. Very short trainings, as in tests,
// have no room for that.
counted_iterations counted_of(std::uint64_t iterations) {
  constexpr std::uint64_t before = 2, after = 3, few = 10;
  if (iterations < few)
    return {std::min(before, iterations - std::min<std::uint64_t>(1, iterations)), iterations};
  return {before, iterations - after};
}

prefill_player::prefill_player(prefill_study study, const job_spec& training)
    : study_{std::move(study)}, iterations_{training.iterations} {
  study_.play.model = training.pipeline.bubbles->model.name;
}

void prefill_player::watch(address from, const frame& f) {
  const auto e = peek(f.header.bytes());
  // Most frames are of other types: decoding every one would double the cost of a simulation.
  static constexpr std::array watched{type_id<bubble_offer>, type_id<stage_signal>,
                                      type_id<prefill_block>, type_id<blocks_received>,
                                      type_id<stage_report>};
  if (!e || std::ranges::find(watched, e->type) == watched.end()) return;
  const auto decoded = decode(f.header.bytes());
  if (!decoded) return;
  const auto& m = decoded->second;
  if (const auto* o = std::get_if<bubble_offer>(&m)) {
    for (const auto& s : o->stages) guests_[e->to].insert(s.stage);
    if (!o->groups.empty()) result_.offers[e->to] = *o;
  } else if (const auto* s = std::get_if<stage_signal>(&m)) {
    on_signal(*s);
  } else if (const auto* b = std::get_if<prefill_block>(&m)) {
    on_block(from, *b);
  } else if (const auto* r = std::get_if<blocks_received>(&m)) {
    on_received(*r);
  } else if (const auto* done = std::get_if<stage_report>(&m)) {
    on_report(*done);
  }
}

void prefill_player::on_signal(const stage_signal& s) {
  auto& stage = stages_[s.stage];
  if (!stage.first) stage.first = s.iteration;
  if (s.iteration > *stage.first) stage.lends = true;
  begin_if_lent();
  if (begun_ && s.iteration >= counted_of(iterations_).end) end_offers();
}

/// Reports may be repeated, and pass several gateways: each counts once.
void prefill_player::on_report(const stage_report& r) {
  const auto stage = stages_.find(r.name);
  if (r.tasks.empty() || stage == stages_.end() || r.iteration <= stage->second.reported) return;
  stage->second.reported = r.iteration;
  auto& device = result_.devices[r.name];
  device.tasks.insert(device.tasks.end(), r.tasks.begin(), r.tasks.end());
  if (r.bubbles) device.guest_s += r.bubbles->guest_s;
}

/// Counts a block where its guest sends it; a gateway on its way may pass it on.
void prefill_player::on_block(address from, const prefill_block& b) {
  constexpr std::size_t remembered = 2000;
  if (!cluster_ || !is_node(*watched_, from)) return;
  ++result_.blocks;
  result_.block_bytes += b.bytes;
  const auto [at, fresh] = prefills_.try_emplace(b.name);
  auto& prefill = at->second;
  if (!prefill.sent.insert({static_cast<std::uint32_t>(b.what), b.guest, b.index}).second)
    ++result_.resent_blocks;
  if (b.what == prefill_block::kind::hidden && b.index + 1 == b.blocks)
    prefill.hop_sent_s.try_emplace(b.guest, cluster_->world().now_s());
  if (fresh) oldest_.push_back(b.name);
  if (oldest_.size() <= remembered) return;
  TROUPE_INVARIANT(prefills_.size() == oldest_.size(),
                   "each prefill that is remembered has its place in their order");
  prefills_.erase(oldest_.front());
  oldest_.pop_front();
}

/// The hop of a guest ends when the next one has its last tile.
void prefill_player::on_received(const blocks_received& r) {
  const auto prefill = prefills_.find(r.name);
  if (!r.hidden || !r.whole || prefill == prefills_.end()) return;
  const auto sent = prefill->second.hop_sent_s.extract(r.guest);
  if (sent) hop_s_[r.name] += cluster_->world().now_s() - sent.mapped();
}

void prefill_player::join(actors::virtual_cluster& v, const troupe::cluster& c) {
  cluster_ = &v;
  watched_ = &c;
  result_.decoders = static_cast<std::uint32_t>(c.fronts.size());
  player_.emplace(
      study_,
      trace_player::world{
          c.fronts.size(),
          // By reference: a front that crashes starts again with other completions.
          [&v](std::size_t f) -> const actors::completions& {
            return v.front(static_cast<std::uint32_t>(f));
          },
          [&v] { return v.world().now_s(); },
          [&v](double at_s, std::function<void()> what) { v.world().at(at_s, std::move(what)); },
          [](const std::function<void()>& what) { what(); }});
}

/// The trace begins once every stage with a guest lends its device.
void prefill_player::begin_if_lent() {
  if (begun_ || !cluster_ || guests_.empty()) return;
  for (const auto& [gateway, stages] : guests_)
    for (const auto& name : stages)
      if (const auto s = stages_.find(name); s == stages_.end() || !s->second.lends) return;
  begun_ = true;
  // A signal is on its way when it is watched; gateways need it before the first prompt.
  constexpr double arrive_s = 0.01;
  auto& world = cluster_->world();
  world.at(world.now_s() + arrive_s, [this] { player_->begin(); });
}

simulated_prefills prefill_player::result() const {
  auto r = result_;
  r.requests = player_->requests();
  r.all_offered = player_->all_offered();
  r.pages_leaked = player_->pages_reserved();
  for (const auto& [name, s] : hop_s_) r.hops_s.push_back(s);
  for (const auto& [gateway, o] : r.offers)
    for (const auto& g : o.groups)
      for (const auto& guest : g.guests) r.devices[guest.stage].node = node_of(guest.node);
  return r;
}

}  // namespace troupe::studies
