#include "studies/prefill_run.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "messages/base/statistics.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::studies {

namespace {

// How often it is checked whether the last request of a window has ended.
constexpr double look_s = 0.002;

// A stage reports its times after 20 iterations (training::replan_every), and its device is lent
// from the next plan on: after 40, prompts find bubbles.
constexpr std::size_t iterations_before = 40;
constexpr double window_iterations = 20, shortest_window_s = 0.2;

}  // namespace

// The scheduler places decoders and stages, not the study: GPU types of their own for the decoders
// are what keeps the two apart.
expected<study_hosts> hosts_of_study(const troupe::cluster& c, const job_spec& training,
                                     const prefill_study& study) {
  if (c.fronts.empty())
    return refuse(reason::kind::infeasible, "the cluster has no front to offer prompts to");
  const auto decoders = decoder_jobs(c, training, study);
  study_hosts r;
  std::set<gpu_index> taken;
  for (const auto& f : c.fronts) {
    const auto own = std::ranges::find_if(c.nodes, [&](const troupe::node& n) {
      return n.datacenter == f.datacenter && n.gpus == 1 &&
             std::ranges::count(c.nodes, n.gpu, &troupe::node::gpu) == 1;
    });
    if (own == c.nodes.end())
      return refuse(reason::kind::infeasible,
                    fmt::format("no node for a decoder in {}: one of a single GPU is needed whose "
                                "type no other node has",
                                c.datacenters[f.datacenter].name));
    r.decoders.push_back(decoders[f.datacenter]);
    r.decoders.back().limits.required_gpu_type = c.gpus[own->gpu].name;
    taken.insert(own->gpu);
  }
  for (const auto& d : c.datacenters) r.training.insert(d.name + "/gateway");
  std::set<gpu_index> types;
  for (const auto& n : c.nodes) {
    if (taken.contains(n.gpu)) continue;
    r.training.insert(n.name);
    types.insert(n.gpu);
  }
  if (types.size() == 1) r.gpu_type = c.gpus[*types.begin()].name;
  return r;
}

expected<std::unique_ptr<prefill_run>> prefill_run::start(
    prefill_study study, const job_spec& training, std::vector<actors::real_host_options> fronts) {
  auto run = std::unique_ptr<prefill_run>{new prefill_run};
  for (std::uint32_t f = 0; f < fronts.size(); ++f) {
    auto host = actors::real_host::front(std::move(fronts[f]), f);
    if (!host) return refuse(host.error());
    run->fronts_.push_back(std::move(*host));
  }
  study.play.model = training.pipeline.bubbles->model.name;
  auto& calls = run->calls_;
  run->player_ = std::make_unique<trace_player>(
      std::move(study),
      trace_player::world{
          run->fronts_.size(),
          [&hosts = run->fronts_](std::size_t f) -> const actors::completions& {
            return hosts[f]->completions();
          },
          [&calls] { return calls.now_s(); },
          [&calls](double at_s, std::function<void()> what) { calls.at(at_s, std::move(what)); },
          [&calls](std::function<void()> what) { calls.soon(std::move(what)); }});
  return run;
}

// A window's end that is already due must not touch a player whose fronts are gone.
prefill_run::~prefill_run() {
  calls_.ask([this] { over_ = true; });
  fronts_.clear();  // their threads use calls_
}

void prefill_run::look(const training_report& so_far) {
  const auto& all = so_far.iterations;
  if (begun_ || all.size() < iterations_before) return;
  std::vector<double> lengths_s;
  for (auto i = all.size() - iterations_before / 2; i < all.size(); ++i)
    lengths_s.push_back(all[i].end_s - all[i].begin_s);
  const double window_s =
      std::max(shortest_window_s, window_iterations * statistics::mean(lengths_s));
  begun_ = true;
  calls_.soon([this, window_s] {
    window_s_ = window_s;
    player_->begin();
    next_window();
  });
}

// Windows are on the wall clock, as the iterations of training reports; the calls that begin and
// end them are on the monotonic one.
void prefill_run::next_window() {
  window_began_s_ = clock_.wall_s();
  calls_.at(calls_.now_s() + window_s_, [this] { end_window(); });
}

void prefill_run::end_window() {
  if (over_) return;
  windows_.push_back({offers_, window_began_s_, clock_.wall_s()});
  offers_ = !offers_;
  if (offers_) {
    player_->resume();
    return next_window();
  }
  player_->pause();
  await_last();
}

/// A window without prompts begins when the last of them has ended.
void prefill_run::await_last() {
  if (player_->open() == 0) return next_window();
  calls_.at(calls_.now_s() + look_s, [this] { await_last(); });
}

real_prefills prefill_run::end(double limit_s) {
  real_prefills r;
  r.done.decoders = static_cast<std::uint32_t>(fronts_.size());
  if (!begun_) return r;
  calls_.ask([&] {
    over_ = true;
    r.done.all_offered = player_->all_offered();
    player_->end_offers();
  });
  runtime::wait_until([&] { return calls_.ask([&] { return player_->open() == 0; }); }, limit_s,
                      look_s);
  calls_.ask([&] {
    r.done.requests = player_->requests();
    r.windows = windows_;
  });
  // Fronts know of free pages with the decoders' next statements.
  runtime::wait_until([&] { return player_->pages_reserved() == 0; }, limit_s, look_s);
  r.done.pages_leaked = player_->pages_reserved();
  return r;
}

}  // namespace troupe::studies
