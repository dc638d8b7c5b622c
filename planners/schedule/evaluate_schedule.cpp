#include "planners/schedule/evaluate_schedule.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "planners/schedule/event_queue.hpp"
#include "planners/schedule/grouped_orders.hpp"
#include "planners/schedule/shared_links.hpp"

namespace troupe::planners {

std::vector<double> commit_ways::arrivals(const std::vector<double>& ready) const {
  const auto each = stages.size();
  TROUPE_INVARIANT(ready.size() == peers.size(), "each stage has a way to its peer");
  std::vector<double> leads(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(each));
  for (std::size_t i = each; i < ready.size(); ++i)
    leads[i % each] = std::max(leads[i % each], ready[i] + peers[i]);
  for (auto s = each - 1; s-- > 0;) leads[s] = std::max(leads[s], leads[s + 1] + stages[s]);
  for (std::size_t s = 1; s < each; ++s) leads[s] = leads[s - 1] + stages[s - 1];
  auto at = peers;
  for (std::size_t i = 0; i < at.size(); ++i) at[i] += leads[i % each];
  return at;
}

namespace {

// An event simulation of what the stage actors do with a schedule's orders. Planned times are not
// that: the rules of ATLAS keep a link for a transfer to come (rule 3) and know one time for all
// hops inside a datacenter, while actors start a step as soon as they can and their tensors share
// links with all that is sent (in a shape of docs/papers/atlas.md 66 slots by rule, 60 by actors).
//
// Invariant: at the end of each instant nothing that could begin is still waiting, and the choice
// among what waits depends on turns alone, as at a gateway. O(events * log(events)).
class execution {
 public:
  /// Simulates `iterations` of them; with `record`, writes their timetable there.
  execution(std::span<const pipeline_schedule> schedules, const measured_times& t,
            std::uint32_t iterations, timetable* record = nullptr)
      : times_{t},
        simulated_{iterations},
        record_{record},
        orders_{schedules, iterations},
        stages_(orders_.size()),
        ends_(iterations, 0.0),
        activation_(orders_.inputs(), never),
        gradient_(activation_.size(), never),
        hops_(orders_.hops()),
        links_{t.links},
        exchanges_(t.routes.size() * iterations),
        commits_(t.commit.needed() ? iterations : 0, commit{stages_.size()}),
        crossings_(std::size_t{orders_.stages()} * iterations) {
    for (std::uint32_t i = 0; i < stages_.size(); i += stages_each_)
      std::fill_n(activation_.begin() + static_cast<std::ptrdiff_t>(orders_.first_input(i)),
                  iterations * of(i).shape.microbatches, 0.0);
    if (record_) begin_record();
  }

  /// Until all steps and tails have ended; false: the orders deadlock.
  bool run() {
    for (std::uint32_t i = 0; i < stages_.size(); ++i) {
      left_ += orders_[i].size() * simulated_;
      happen(0, kind::ready, i);
    }
    due_.run(
        tiny,
        [&](const event& e, double now) {
          now_ = now;
          if (e.what == kind::step) end(e.where);
          if (e.what == kind::hop) hops_[e.where].busy = false, asked_.push_back(e.where);
          if (e.what == kind::link) wake(e.where, e.at);
          if (e.what == kind::delivered) arrived(transfers_[e.where]);
          if (e.what == kind::gradients) begin_exchange(e.where);
          if (e.what == kind::finished) stages_[e.where].busy = false;
          if (e.what == kind::summed) set_summed(e.where);
          if (e.what == kind::crossed) cross(e.where);
          if (e.what == kind::ready || e.what == kind::step || e.what == kind::finished)
            look(e.where);
        },
        [&](double) {
          for (const auto h : asked_) choose(h);
          asked_.clear();
        });
    TROUPE_INVARIANT(!ends_.empty(), "at least one iteration is simulated");
    if (record_) record_->length = ends_.back();
    return left_ == 0;
  }

  /// The mean over times.iterations. Those that were not simulated take as long as the middle ones
  /// do: the first iteration has no predecessor to overlap with, and the last no successor.
  double mean() const {
    const auto n = std::max<std::uint64_t>(1, times_.iterations);
    TROUPE_INVARIANT(simulated_ <= n && ends_.size() == simulated_,
                     "the iterations that are simulated are among all");
    const auto left = static_cast<double>(n - simulated_);
    if (left == 0) return ends_.back() / static_cast<double>(n);
    // The last iteration is shorter: none follows it.
    const auto last = std::max(1U, simulated_ - 2), first = last - std::max(1U, last / 2);
    const double each = (ends_[last] - ends_[first]) / (last - first);
    return (ends_.back() + left * each) / static_cast<double>(n);
  }

 private:
  // Kinds of events: a stage's input is there; its step ends; a WAN hop becomes idle; a LAN link
  // has a flow that ends; a LAN transfer has arrived; a stage's gradients are on the host; its
  // devices have all-reduced; a stage's sums are back from the other datacenters; its update ends.
  enum class kind : std::uint8_t {
    ready,
    step,
    hop,
    link,
    delivered,
    gradients,
    summed,
    crossed,
    finished
  };
  struct event {
    double at = 0;
    std::uint64_t sequence = 0;
    kind what = kind::ready;
    std::uint32_t where = 0;
    bool operator<(const event& o) const {  // later
      return at != o.at ? at > o.at : sequence > o.sequence;
    }
  };
  struct place {
    std::size_t next = 0;
    bool busy = false;
  };
  struct transfer {
    std::uint32_t iteration = 0, turn = 0, stage = 0, microbatch = 0;
    bool operator<(const transfer& o) const {
      return std::tie(iteration, turn, stage) < std::tie(o.iteration, o.turn, o.stage);
    }
  };
  struct hop {
    bool busy = false;
    std::set<transfer> waiting;
  };
  /// A transfer inside a datacenter. Equal chunks to several peers over one link are one entry with
  /// a count: they have equal shares, so they end together.
  struct lan_transfer {
    enum class kind : std::uint8_t { activation, gradient, partial, sum, tied_partial, tied_sum };
    kind what = kind::activation;
    std::uint32_t from = 0;        // stage
    std::uint32_t microbatch = 0;  // counted across iterations; for gradients the iteration
    const std::vector<std::uint32_t>* pipelines = nullptr;
    double latency_s = 0;
    double begin = 0;
  };
  /// Destinations of a stage's flows: the next stage, the one before, the other end with the tied
  /// embedding, and from 3 on the groups of peers.
  static constexpr std::uint32_t forward_flow = 0, backward_flow = 1, tied_flow = 2, peer_flow = 3;
  /// A stage's all-reduce in one iteration: it gives away its partial gradients, adds what it gets
  /// for its chunk and sends the sum; a tied embedding's part comes before and goes back after.
  struct exchange {
    bool begun = false, given = false, added = false, summed = false, complete = false;
    bool crossed = false;  // its chunk has the parts of all datacenters
    bool tied_here = false;
    std::optional<double> commit_at{};  // when it may update, while it waits for a tied sum
    std::uint32_t parts = 0, sums = 0;  // received from peers
  };

  /// An iteration's: how many stages are ready, when, and their updates' times.
  struct commit {
    explicit commit(std::size_t all) : ready(all), takes(all) {}
    std::uint32_t stages = 0;
    std::vector<double> ready, takes;
  };

  void happen(double at, kind what, std::size_t where) {
    due_.add({at, ++sequence_, what, static_cast<std::uint32_t>(where)});
  }
  const group_run& of(std::uint32_t stage) const { return orders_.group_of(stage); }
  std::size_t at(std::uint32_t stage, std::uint32_t m) const {
    return orders_.first_input(stage) + m;
  }
  /// The stage's next step. `next` counts steps across iterations, and so do micro-batches.
  const stage_step& step_of(std::uint32_t stage) const {
    return orders_[stage][stages_[stage].next % orders_[stage].size()];
  }
  std::uint32_t iteration_of(std::uint32_t stage) const {
    return static_cast<std::uint32_t>(stages_[stage].next / orders_[stage].size());
  }
  std::uint32_t microbatch_of(std::uint32_t stage) const {
    return iteration_of(stage) * of(stage).shape.microbatches + step_of(stage).microbatch;
  }
  exchange& exchange_of(std::uint32_t stage, std::uint32_t iteration) {
    return exchanges_[std::size_t{stage} * simulated_ + iteration];
  }

  // ---- the timetable

  void begin_record() {
    *record_ = {};
    record_->iterations = simulated_;
    record_->stages = stages_each_;
    record_->steps.resize(stages_.size());
    record_->tails.resize(stages_.size());
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      record_->steps[i].reserve(orders_[i].size() * simulated_);
      record_->tails[i].resize(simulated_);
    }
  }
  timed_tail* tail_of(std::uint32_t stage, std::uint32_t iteration) {
    return record_ ? &record_->tails[stage][iteration] : nullptr;
  }

  /// Begins the stage's next step, if the stage is idle and the step's input has arrived.
  void look(std::uint32_t stage) {
    auto& x = stages_[stage];
    if (x.busy || x.next == orders_[stage].size() * simulated_) return;
    const auto& step = step_of(stage);
    const auto m = at(stage, microbatch_of(stage));
    if (step.what == stage_task::kind::forward && activation_[m] > now_ + tiny) return;
    if (step.what == stage_task::kind::backward && gradient_[m] > now_ + tiny) return;
    const auto& t = times_.stages[stage];
    x.busy = true;
    const double end = now_ + (step.what == stage_task::kind::forward     ? t.forward
                               : step.what == stage_task::kind::recompute ? t.recompute
                                                                          : t.backward);
    happen(end, kind::step, stage);
    if (record_) record_->steps[stage].push_back({step.what, step.microbatch, now_, end});
  }

  /// The stage's step has ended: sends its output. After the last step of an iteration the stage
  /// stays busy until its update.
  void end(std::uint32_t stage) {
    TROUPE_INVARIANT(left_ > 0, "no more steps end than the orders have");
    --left_;
    auto& x = stages_[stage];
    const auto step = step_of(stage);
    const auto m = microbatch_of(stage), iteration = iteration_of(stage);
    x.busy = ++x.next % orders_[stage].size() == 0;
    if (x.busy) end_steps(stage, iteration);
    if (step.what == stage_task::kind::recompute) return;
    const bool back = step.what == stage_task::kind::backward;
    const auto s = stage % stages_each_;
    if (back && s == 0) return;
    if (!back && s + 1 == stages_each_) {
      gradient_[at(stage, m)] = now_;
      return;
    }
    const auto after = back ? s - 1 : s;
    const auto& g = of(stage);
    if (!g.shape.is_wan(after)) return send_inside(stage, after, m, back);
    const auto cell = (stage / stages_each_ - g.first) / g.cell;
    const auto h = g.first_hop + (cell * stages_each_ + after) * 2 + (back ? 1 : 0);
    hops_[h].waiting.insert({iteration, step.turn, stage, m});
    asked_.push_back(static_cast<std::uint32_t>(h));
  }

  /// Begins the waiting transfer with the smallest turn on an idle WAN hop. A cell that shares the
  /// WAN in time has the bandwidth of all its pipelines' nodes.
  void choose(std::uint32_t h) {
    auto& wan = hops_[h];
    if (wan.busy || wan.waiting.empty()) return;
    const auto t = *wan.waiting.begin();
    wan.waiting.erase(wan.waiting.begin());
    wan.busy = true;
    const auto& g = of(t.stage);
    const auto first = (t.stage / stages_each_ - g.first) / g.cell * g.cell;
    const auto sharing = g.shares_wan ? std::min(g.cell, g.shape.pipelines - first) : 1;
    const double left = now_ + times_.wan[g.first_time + h / 2 % stages_each_] / sharing;
    happen(left, kind::hop, h);
    arrive(t.stage, t.microbatch, h % 2 == 1, now_, left, left + times_.wan_latency);
  }

  /// The tensor of a step of stage `from` arrives at `end`; its transfer had the link from `begin`
  /// to `left`.
  void arrive(std::uint32_t from, std::uint32_t m, bool back, double begin, double left,
              double end) {
    const auto to = back ? from - 1 : from + 1;
    TROUPE_INVARIANT(to / stages_each_ == from / stages_each_, "a tensor stays in its pipeline");
    (back ? gradient_ : activation_)[at(to, m)] = end;
    happen(end, kind::ready, to);
    const auto each = of(from).shape.microbatches;
    if (record_)
      record_->transfers.push_back({m / each, from / stages_each_,
                                    std::min(from, to) % stages_each_, m % each, back, begin, left,
                                    end});
  }

  // ---- transfers inside a datacenter

  void send_inside(std::uint32_t stage, std::uint32_t after, std::uint32_t m, bool back) {
    if (times_.routes.empty()) {
      const double end = now_ + times_.lan[of(stage).first_time + after];
      return arrive(stage, m, back, now_, end, end);
    }
    const auto& routes = times_.routes[stage];
    using what = lan_transfer::kind;
    send(back ? routes.backward : routes.forward,
         {back ? what::gradient : what::activation, stage, m}, back ? backward_flow : forward_flow);
  }

  void send(const lan_route& route, lan_transfer t, std::uint32_t to) {
    t.latency_s = route.latency_s;
    t.begin = now_;
    const auto wakes_s = links_.start(route.link, route.link_s(), route.share, now_, {t.from, to},
                                      transfers_.size(), t.pipelines ? t.pipelines->size() : 1);
    transfers_.push_back(t);
    if (wakes_s) happen(*wakes_s, kind::link, route.link);
  }

  void wake(std::uint32_t l, double at_s) {
    const auto next_s = links_.wake(l, at_s, [&](std::size_t ended) {
      happen(at_s + transfers_[ended].latency_s, kind::delivered, ended);
    });
    if (next_s) happen(*next_s, kind::link, l);
  }

  void arrived(lan_transfer t) {
    const auto stages = stages_each_, s = t.from % stages;
    switch (t.what) {
      case lan_transfer::kind::activation:
      case lan_transfer::kind::gradient:
        return arrive(t.from, t.microbatch, t.what == lan_transfer::kind::gradient, t.begin,
                      now_ - t.latency_s, now_);
      case lan_transfer::kind::tied_partial:
      case lan_transfer::kind::tied_sum: {
        const auto other = s == 0 ? t.from + stages - 1 : t.from - (stages - 1);
        exchange_of(other, t.microbatch).tied_here = true;
        return check_exchange(other, t.microbatch);
      }
      default:
        for (const auto p : *t.pipelines) {
          auto& x = exchange_of(p * stages + s, t.microbatch);
          ++(t.what == lan_transfer::kind::partial ? x.parts : x.sums);
          check_exchange(p * stages + s, t.microbatch);
        }
    }
  }

  // ---- after a stage's last backward

  void end_steps(std::uint32_t stage, std::uint32_t iteration) {
    const auto& t = times_.stages[stage];
    if (auto* tail = tail_of(stage, iteration)) {
      tail->begin = now_;
      tail->exchange = now_ + t.gradients;
      tail->on_devices =
          !times_.routes.empty() && times_.routes[stage].sums && times_.routes[stage].sum_s > 0;
    }
    if (times_.routes.empty()) return update(stage, iteration, t.update + t.exchange);
    if (!times_.routes[stage].sums) return update(stage, iteration, t.update);
    happen(now_ + t.gradients, kind::gradients, stage);
  }

  /// The stage's gradients are summed.
  void update(std::uint32_t stage, std::uint32_t iteration, double takes_s) {
    if (commits_.empty()) return finish(stage, iteration, now_ + takes_s);
    auto& known = commits_[iteration];
    known.ready[stage] = now_ + times_.stages[stage].norms;
    known.takes[stage] = takes_s;
    TROUPE_INVARIANT(known.stages < stages_.size(), "each stage is ready once in an iteration");
    if (++known.stages < stages_.size()) return;
    const auto arrivals = times_.commit.arrivals(known.ready);
    // The sum of a tied embedding's gradients may come after the commit, which does not wait for
    // it.
    for (std::uint32_t s = 0; s < stages_.size(); ++s)
      if (!times_.routes.empty() && gives_tied(s) && !exchange_of(s, iteration).tied_here)
        exchange_of(s, iteration).commit_at = arrivals[s];
      else
        finish(s, iteration, arrivals[s] + known.takes[s]);
  }

  void finish(std::uint32_t stage, std::uint32_t iteration, double end_s) {
    ends_[iteration] = std::max(ends_[iteration], end_s);
    if (auto* tail = tail_of(stage, iteration)) {
      const auto& t = times_.stages[stage];
      tail->end = end_s;
      tail->update = std::max(tail->exchange, tail->end - (t.update - t.gradients));
    }
    happen(end_s, kind::finished, stage);
  }

  bool takes_tied(std::uint32_t stage) const {
    return times_.routes[stage].tied && stage % stages_each_ == 0;
  }
  bool gives_tied(std::uint32_t stage) const {
    return times_.routes[stage].tied && stage % stages_each_ > 0;
  }

  /// For the iteration whose steps have ended: its gradients are on the host.
  void begin_exchange(std::uint32_t stage) {
    TROUPE_INVARIANT(iteration_of(stage) > 0,
                     "gradients are summed of an iteration whose steps have ended");
    const auto i = iteration_of(stage) - 1;
    exchange_of(stage, i).begun = true;
    if (gives_tied(stage))
      send(times_.routes[stage].tied_route, {lan_transfer::kind::tied_partial, stage, i},
           tied_flow);
    check_exchange(stage, i);
  }

  /// Takes the all-reduce as far as what has arrived allows, and then begins the update.
  void check_exchange(std::uint32_t stage, std::uint32_t i) {
    auto& x = exchange_of(stage, i);
    const double takes_s = times_.stages[stage].update - times_.stages[stage].gradients;
    if (x.commit_at && x.tied_here)
      return finish(stage, i, std::max(now_, *std::exchange(x.commit_at, {})) + takes_s);
    if (!x.begun || x.complete) return;
    const auto& routes = times_.routes[stage];
    const auto others = sum_of(routes.peers, [](const auto& to) {
      return static_cast<std::uint32_t>(to.pipelines.size());
    });
    const bool by_devices = routes.peers.empty() && routes.between_s == 0;
    TROUPE_INVARIANT(x.parts <= others && x.sums <= others,
                     "a stage gets one part of the gradients from each peer");
    if (!x.given) {
      if (takes_tied(stage) && !x.tied_here) return;
      x.given = true;
      if (by_devices) happen(now_ + routes.sum_s, kind::summed, stage);
      send_chunks(stage, i, lan_transfer::kind::partial);
    }
    if (!x.added && !by_devices && x.parts == others) {
      x.added = true;
      if (routes.between_s == 0)
        end_crossing(stage, i);
      else if (++crossings_[i * stages_each_ + stage % stages_each_] == orders_.pipelines())
        happen(now_ + routes.between_s, kind::crossed, i * stages_each_ + stage % stages_each_);
    }
    if (!x.summed && x.crossed && x.sums == others) return set_summed(stage);
    x.complete = x.summed && (!gives_tied(stage) || x.tied_here || !commits_.empty());
    if (x.complete) update(stage, i, takes_s);
  }

  void set_summed(std::uint32_t stage) {
    const auto i = iteration_of(stage) - 1;
    exchange_of(stage, i).summed = true;
    if (takes_tied(stage))
      send(times_.routes[stage].tied_route, {lan_transfer::kind::tied_sum, stage, i}, tied_flow);
    check_exchange(stage, i);
  }

  /// The stage's chunk has the parts of all pipelines: its peers here get it.
  void end_crossing(std::uint32_t stage, std::uint32_t iteration) {
    exchange_of(stage, iteration).crossed = true;
    send_chunks(stage, iteration, lan_transfer::kind::sum);
  }
  /// The chunks of all peers of a stage are summed over the datacenters, and back.
  void cross(std::uint32_t where) {
    const auto i = where / stages_each_;
    for (auto stage = where % stages_each_; stage < stages_.size(); stage += stages_each_) {
      end_crossing(stage, i);
      check_exchange(stage, i);
    }
  }

  void send_chunks(std::uint32_t stage, std::uint32_t iteration, lan_transfer::kind what) {
    auto to = peer_flow;
    for (const auto& group : times_.routes[stage].peers)
      send(group.route, {what, stage, iteration, &group.pipelines}, to++);
  }

  const measured_times& times_;
  const std::uint32_t simulated_;  // iterations
  timetable* const record_;
  const grouped_orders orders_;
  const std::uint32_t stages_each_ = orders_.stages();  // of a pipeline
  std::vector<place> stages_;
  std::vector<double> ends_;                   // of iterations
  std::vector<double> activation_, gradient_;  // arrival times, by stage, then micro-batch
  std::vector<hop> hops_;                      // (group, cell, hop, direction)
  shared_links links_;                         // inside datacenters
  std::vector<lan_transfer> transfers_;        // over these
  std::vector<exchange> exchanges_;            // by stage
  std::vector<commit> commits_;                // by iteration
  std::vector<std::uint32_t> crossings_;       // by iteration and stage: pipelines that could cross
  std::vector<std::uint32_t> asked_;
  std::size_t left_ = 0;  // steps
  event_queue<event> due_;
  std::uint64_t sequence_ = 0;
  double now_ = 0;
  static constexpr double tiny = 1e-9;
};

}  // namespace

double simulated_iteration_s(std::span<const pipeline_schedule> groups,
                             const measured_times& times) {
  execution e{groups, times, iterations_to_simulate(groups, times.iterations)};
  return e.run() ? e.mean() : never;
}

expected<timetable> simulated_timetable(std::span<const pipeline_schedule> groups,
                                        const measured_times& times, std::uint32_t iterations) {
  timetable made;
  if (!execution{groups, times, iterations, &made}.run())
    return refuse(reason::kind::invalid, "the orders of the stages wait for each other forever");
  std::ranges::stable_sort(made.transfers, {}, &timed_transfer::begin);
  return made;
}

}  // namespace troupe::planners
