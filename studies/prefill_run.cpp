#include "studies/prefill_run.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "runtime/host/timed_calls.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::studies {

struct prefill_run::impl {
  static constexpr double look_s = 0.002;  // whether the last request of a window has ended

  prefill_study study;
  std::vector<std::unique_ptr<real_host>> fronts;
  std::size_t decoders = 0;
  runtime::real_clock clock;
  bool begun = false;

  // Used by the thread of `calls` alone.
  std::optional<trace_player> player;
  std::vector<offer_window> windows;
  bool offers = false, over = false;
  double window_s = 0, began_s = 0;

  runtime::timed_calls calls;  // the last one: it ends first

  void play() {
    std::vector<trace_player::front_door> doors;
    for (const auto& f : fronts) {
      const auto& way = f->completions();
      doors.push_back({[this, way](model_prompt p, completion_listener l) {
                         return way.submit(std::move(p),
                                           [this, l = std::move(l)](const completion_update& n) {
                                             calls.soon([l, n] { l(n); });
                                           });
                       },
                       [way](std::uint64_t number) { way.cancel(number); }});
    }
    player.emplace(study.play, study.prompts, std::move(doors),
                   trace_player::clock{[this] { return calls.now_s(); },
                                       [this](double at_s, std::function<void()> what) {
                                         calls.at(at_s, std::move(what));
                                       }});
    player->begin();
    offers = true;
    next_window();
  }
  void next_window() {
    began_s = clock.wall_s();
    calls.at(calls.now_s() + window_s, [this] { turn(); });
  }
  /// The present window has ended.
  void turn() {
    if (over) return;
    windows.push_back({offers, began_s, clock.wall_s()});
    offers = !offers;
    if (offers) {
      player->resume();
      return next_window();
    }
    player->pause();
    await_last();
  }
  void await_last() {
    if (player->open() == 0) return next_window();
    calls.at(calls.now_s() + look_s, [this] { await_last(); });
  }
};

expected<std::vector<job_spec>> real_decoder_jobs(const troupe::cluster& c,
                                                  const job_spec& training,
                                                  const prefill_study& study) {
  std::vector<job_spec> all;
  const auto like = decoder_jobs(c, training, study);
  for (const auto& f : c.fronts) {
    const auto own = std::ranges::find_if(c.nodes, [&](const troupe::node& n) {
      return n.datacenter == f.datacenter &&
             std::ranges::count(c.nodes, n.gpu, &troupe::node::gpu) == 1 && n.gpus == 1;
    });
    if (own == c.nodes.end())
      return refuse(reason::kind::infeasible,
                    fmt::format("no node for a decoder in {}: one of a single GPU is needed whose "
                                "type no other node has",
                                c.datacenters[f.datacenter].name));
    auto& job = all.emplace_back(like[f.datacenter]);
    job.required_gpu_type = c.gpus[own->gpu].name;
  }
  if (all.empty())
    return refuse(reason::kind::infeasible, "the cluster has no front to offer prompts to");
  return all;
}

std::string gpu_type_without(const troupe::cluster& c, const std::vector<job_spec>& decoders) {
  std::string only;
  for (const auto& n : c.nodes) {
    const auto& type = c.gpus[n.gpu].name;
    if (std::ranges::count(decoders, type, &job_spec::required_gpu_type) > 0) continue;
    if (!only.empty() && only != type) return {};
    only = type;
  }
  return only;
}

prefill_run::prefill_run(std::unique_ptr<impl> i) : impl_{std::move(i)} {}
prefill_run::~prefill_run() {
  impl_->calls.ask([this] { impl_->over = true; });
  impl_->fronts.clear();  // their threads call back
}

expected<std::unique_ptr<prefill_run>> prefill_run::start(std::shared_ptr<const troupe::cluster> c,
                                                          prefill_study study,
                                                          const job_spec& training,
                                                          std::vector<real_host_options> fronts) {
  auto i = std::make_unique<impl>();
  i->study = std::move(study);
  i->study.play.model = training.pipeline.bubbles->model.name;
  i->decoders = c->fronts.size();
  for (std::uint32_t f = 0; f < fronts.size(); ++f) {
    auto host = real_host::front(std::move(fronts[f]), f);
    if (!host) return refuse(host.error());
    i->fronts.push_back(std::move(*host));
  }
  return std::unique_ptr<prefill_run>{new prefill_run{std::move(i)}};
}

bool prefill_run::ready() const {
  return std::ranges::all_of(impl_->fronts, [this](const auto& f) {
    const auto view = f->completions().view();
    const auto m = view.models.find(impl_->study.play.model);
    return m != view.models.end() && m->second.decoders == impl_->decoders;
  });
}

void prefill_run::begin(double window_s) {
  impl_->begun = true;
  impl_->window_s = window_s;
  impl_->calls.soon([this] { impl_->play(); });
}

bool prefill_run::begun() const {
  return impl_->begun;
}

real_prefills prefill_run::end(double limit_s) {
  auto& i = *impl_;
  real_prefills r;
  r.done.decoders = static_cast<std::uint32_t>(i.decoders);
  if (!i.begun) return r;
  i.calls.ask([&] {
    i.over = true;
    r.done.all_offered = i.player->all_offered();
    i.player->end_offers();
  });
  runtime::wait_until([&] { return i.calls.ask([&] { return i.player->open() == 0; }); }, limit_s,
                      impl::look_s);
  i.calls.ask([&] {
    r.done.requests = i.player->requests();
    r.windows = i.windows;
  });
  const auto pages_used = [&] {
    const auto view = i.fronts.front()->completions().view();
    const auto m = view.models.find(i.study.play.model);
    return m == view.models.end() ? 0 : m->second.pages - m->second.free_pages;
  };
  // Decoders say it with their next statement.
  runtime::wait_until([&] { return pages_used() == 0; }, limit_s, impl::look_s);
  r.done.pages_leaked = pages_used();
  return r;
}

}  // namespace troupe::studies
