#include "actors/worlds/virtual_cluster.hpp"

#include <stdexcept>

#include <caf/all.hpp>

#include "runtime/journal/observed_journal.hpp"

namespace troupe::actors {

struct virtual_cluster::submissions {
  std::vector<job_id> accepted;
  std::optional<reason> refusal;
  std::shared_ptr<const runtime::journal> journal;
};

namespace {

constexpr address client_address = first_client_address + 1;
constexpr double forever_s = 1e12;

/// Sends a request from outside the actor system, and passes the reply to a function.
void ask_through(caf::actor_system& system, const client_actor& client, message request,
                 double patience_s, std::function<void(const answer&)> done) {
  system.spawn([client, request = std::move(request), patience_s,
                done = std::move(done)](caf::event_based_actor* self) {
    self->request(client, caf::infinite, ask{request, patience_s}).then([done](const answer& a) {
      done(a);
    });
  });
}

state_subscriber::behavior_type state_watcher(state_subscriber::pointer,
                                              std::function<void(const cluster_state&)> on_state) {
  return {[on_state = std::move(on_state)](const state_changed& m) { on_state(*m.now); }};
}

class watched_work final : public work_observer {
 public:
  using watcher = decltype(virtual_cluster_options::on_work);
  watched_work(node_index node, watcher w) : node_{node}, watcher_{std::move(w)} {}
  void on_begin(const work_order& w) override { watcher_(node_, &w, nullptr); }
  void on_end(const work_order& w, const part_report& ended) override {
    watcher_(node_, &w, &ended);
  }

 private:
  node_index node_;
  watcher watcher_;
};

}  // namespace

virtual_cluster::virtual_cluster(virtual_cluster_options options)
    : options_{std::move(options)},
      submissions_{std::make_shared<submissions>()},
      fronts_(options_.cluster->fronts.size()),
      // A stream of its own, so that the number of submissions changes nothing else of a seed.
      requests_{options_.seed ^ 0x5eedULL},
      world_{options_.machines ? *options_.machines : *options_.cluster, options_of_world()} {
  const auto c = options_.cluster;
  auto& system = world_.system();
  // Each function starts a host's actors, at the beginning and after each crash: it must not keep
  // anything of the host's earlier life.
  world_.add_host(controller_address, [this, c, &system](const runtime::host& h) {
    submissions_->journal = h.journal;
    auto host = h;
    if (options_.on_entry)
      host.journal = std::make_shared<runtime::observed_journal>(h.journal, options_.on_entry);
    auto started = start_controller(system, host,
                                    {c, options_.policy, false, true, options_.on_decision,
                                     options_.limits, 0, options_.gather_s, options_.explains});
    if (options_.on_state) {
      const auto watcher = system.spawn(state_watcher, options_.on_state);
      caf::anon_send(started.orchestrator, subscribe{watcher});
      started.all.push_back(caf::actor_cast<caf::actor>(watcher));
    }
    return std::move(started.all);
  });
  for (std::uint32_t d = 0; d < c->datacenters.size(); ++d)
    world_.add_host(gateway_address(d), [this, c, d, &system](const runtime::host& h) {
      return start_gateway(system, h, c, true, [this, d](std::uint32_t other) {
        return world_.link_slowdown(d, other);
      });
    });
  for (node_index n = 0; n < c->nodes.size(); ++n) add_node(n, c);
  for (std::uint32_t f = 0; f < c->fronts.size(); ++f)
    world_.add_host(front_address(f), [this, c, f, &system](const runtime::host& h) {
      fronts_[f] = {};
      auto all = start_front(system, h, c, fronts_[f]);
      if (options_.on_front)
        for (auto& a : options_.on_front(f, h, fronts_[f])) all.push_back(std::move(a));
      return all;
    });
  world_.add_host(client_address, [this, &system](const runtime::host& h) {
    client_ = start_client(system, h);
    return std::vector<caf::actor>{caf::actor_cast<caf::actor>(client_)};
  });
}

virtual_cluster::~virtual_cluster() = default;

void virtual_cluster::add_node(node_index n, std::shared_ptr<const troupe::cluster> c) {
  world_.add_host(node_address(n), [this, c = std::move(c), n](const runtime::host& h) {
    node_options how;
    how.cluster = c;
    how.slowdown = [this, a = h.self] { return world_.slowdown(a); };
    how.on_weights = options_.on_weights;
    if (options_.on_work) how.observer = std::make_shared<watched_work>(n, options_.on_work);
    return start_node(world_.system(), h, std::move(how));
  });
}

/// It gets the cluster of the journal, as a real node gets it from the controller that admits it.
void virtual_cluster::join(node_index n) {
  std::shared_ptr<const troupe::cluster> now;
  for (const auto& e : journal())
    if (const auto* changed = std::get_if<cluster_changed>(&e))
      now = std::make_shared<const troupe::cluster>(changed->cluster);
  add_node(n, std::move(now));
}

runtime::virtual_options virtual_cluster::options_of_world() const {
  runtime::virtual_options o;
  o.seed = options_.seed;
  o.faults = options_.faults;
  o.on_append = options_.on_append;
  o.loses = options_.loses;
  if (options_.on_work)
    o.on_crash = [c = options_.machines ? options_.machines : options_.cluster,
                  watcher = options_.on_work](address a) {
      if (is_node(*c, a)) watcher(node_of(a), nullptr, nullptr);
    };
  return o;
}

namespace {

/// Between submissions of one instant, so that they arrive in the workload's order. The network
/// delivers short frames first: without it, the length of a job's frame would decide its number.
constexpr double between_submissions_s = 1e-6;

}  // namespace

void virtual_cluster::submit(std::vector<arrival> workload) {
  const auto shared = std::make_shared<const std::vector<arrival>>(std::move(workload));
  schedule(*shared, shared);
}

void virtual_cluster::submit_from(std::span<const arrival> workload) {
  schedule(workload, nullptr);
}

/// A message is made when it is sent: a workload of 100,000 jobs would take 2.6 kB for each before
/// the first has arrived. `owner` keeps the list.
void virtual_cluster::schedule(std::span<const arrival> workload,
                               const std::shared_ptr<const void>& owner) {
  double instant_s = -1, at_s = 0;
  for (const auto& a : workload) {
    at_s = a.at_s == instant_s ? at_s + between_submissions_s : a.at_s;
    instant_s = a.at_s;
    world_.at(at_s, [this, request = requests_.next() | 1,
                     job = std::shared_ptr<const job_spec>{owner, &a.spec}] {
      submit_now(submit_job{request, *job});
    });
  }
}

/// The function shares the submissions: the reply may arrive when this object has gone.
void virtual_cluster::submit_now(submit_job request) {
  ask_through(
      world_.system(), client_, std::move(request), forever_s,
      [submissions = submissions_](const answer& reply) {
        if (!reply.reply) return;
        const auto* reply_to_submit = std::get_if<submit_reply>(&reply.reply->first);
        if (!reply_to_submit) return;
        if (reply_to_submit->job != 0)
          submissions->accepted.push_back(reply_to_submit->job);
        else if (!submissions->refusal && reply_to_submit->why.code != reason::kind::infeasible)
          submissions->refusal = reply_to_submit->why;  // else it has failed
      });
}

void virtual_cluster::send(message request, double patience_s,
                           std::function<void(const answer&)> done) {
  ask_through(world_.system(), client_, std::move(request), patience_s, std::move(done));
}

answer virtual_cluster::ask(message request, double limit_s) {
  // Shared: the reply may come after this call has given up.
  auto box = std::make_shared<std::vector<answer>>();
  ask_through(world_.system(), client_, std::move(request), limit_s,
              [box](const answer& a) { box->push_back(a); });
  world_.run_until([box] { return !box->empty(); }, world_.now_s() + 2 * limit_s);
  return box->empty() ? answer{} : box->front();
}

const std::vector<job_id>& virtual_cluster::accepted() const {
  return submissions_->accepted;
}

const std::optional<reason>& virtual_cluster::refusal() const {
  return submissions_->refusal;
}

std::vector<journal_entry> virtual_cluster::journal() const {
  std::vector<journal_entry> entries;
  auto ok = submissions_->journal->replay([&](const journal_entry& e) { entries.push_back(e); });
  if (!ok) throw std::runtime_error(ok.error().text);
  return entries;
}

}  // namespace troupe::actors
