#include "runtime/virtual/virtual_world.hpp"

#include <algorithm>
#include <caf/all.hpp>
#include <cmath>
#include <map>
#include <utility>

// Determinism rests on one rule: every random draw comes from a stream that is split off the seed
// by its user, and a planned fault carries its own stream along. So another host, or a fault of
// another kind, leaves all other draws as they were, and a failing seed stays comparable with its
// neighbours.
namespace troupe::runtime {
namespace {

// Streams of random numbers, one per user, so that one user's draws do not change another's.
enum stream : std::uint64_t {
  network_stream = 1,
  torn_stream = 2,
  down_stream = 3,
  journal_stream = 4,
  clock_stream = 5,
  host_stream = 1u << 20
};

/// One host's clocks. Both are virtual time, unless a fault or set_wall_clock changes them.
class virtual_clock final : public clock {
 public:
  explicit virtual_clock(const virtual_coordinator& time) : time_{time} {}
  // A drifting monotonic clock starts anywhere and runs at its own rate, which leases must
  // tolerate. The wall clock jumps: only logs may depend on it.
  double now_s() const override { return begun_s_ + rate_ * to_s(time_.now()); }
  double wall_s() const override { return to_s(time_.now()) + wall_ahead_s_; }
  void set_wall_ahead(double s) { wall_ahead_s_ = s; }
  void set_monotonic(double begun_s, double rate) { begun_s_ = begun_s, rate_ = rate; }

 private:
  const virtual_coordinator& time_;
  double wall_ahead_s_ = 0;
  double begun_s_ = 0, rate_ = 1;
};

struct config final : caf::actor_system_config {
  explicit config(const virtual_options& options) {
    virtual_coordinator::install(*this);
    if (options.configure) options.configure(*this);
  }
};

/// Exponential, with this mean.
// log1p(-u) with u in [0, 1): never the logarithm of 0.
double exponential(random_source& random, double mean) {
  return -std::log1p(-random.uniform()) * mean;
}

}  // namespace

struct virtual_world::impl {
  struct machine {
    address self = 0;
    start_function start;
    std::shared_ptr<virtual_clock> clock;
    std::shared_ptr<memory_disk> disk;  // of the controller
    std::shared_ptr<memory_journal> written;
    std::vector<caf::actor> actors;
    random_source random{0};
    std::uint64_t incarnation = 0;
    bool up = false;
    double down_until_s = 0;
  };

  impl(cluster c, virtual_options o)
      : options{std::move(o)},
        world{std::move(c)},
        cfg{options},
        system{std::make_unique<caf::actor_system>(cfg)},
        time{virtual_coordinator::of(*system)},
        seeds{options.seed},
        net{time, world, options.faults, seeds.split(network_stream), options.credit_frames},
        torn{seeds.split(torn_stream)},
        downs{seeds.split(down_stream)},
        host_seeds{seeds.split(host_stream)} {
    net.lose(options.loses);
  }

  ~impl() {
    options.on_crash = nullptr;
    for (auto& [a, m] : machines) {
      end(m);
      m.actors.clear();
      m.start = nullptr;
    }
    // Ends every actor. Machines, network and clocks must still exist: actors hold them, and the
    // functors of go_down_with use their machine.
    system.reset();
  }

  void add(address a, start_function f) {
    auto [found, fresh] = machines.try_emplace(a);
    if (!fresh) return;
    auto& m = found->second;
    m.self = a;
    m.start = std::move(f);
    m.clock = std::make_shared<virtual_clock>(time);
    // Ordered by address, not by arrival.
    m.random = random_source{host_seeds}.split(host_stream + a);
    spoil_clock(m, random_source{m.random}.split(clock_stream));
    if (a == controller_address) {
      m.disk = std::make_shared<memory_disk>();
      m.disk->id = random_source{options.seed}.split(journal_stream).next() | 1;
    }
    for (const auto& c : options.faults.crashes)
      if (is_meant(world, a, c.host))
        time.at(to_ns(c.at_s), [this, &m, down_s = c.down_s] { go_down(m, down_s); });
    if (const double rate = crashes_per_hour(a); rate > 0)
      plan_crash(m, random_source{m.random}.split(down_stream), rate, options.faults.from_s);
    begin(m);
  }

  /// Null: there is no such host.
  machine* find(address a) {
    const auto found = machines.find(a);
    return found == machines.end() ? nullptr : &found->second;
  }

  // A host's memory is new; its disk and its clocks are the old ones.
  void begin(machine& m) {
    if (m.up) return;
    m.up = true;
    host h;
    h.self = m.self;
    h.incarnation = ++m.incarnation;
    h.clock = m.clock;
    h.net = net.open(m.self);
    h.random = m.random.split(m.incarnation);
    if (m.disk) {
      m.written = std::make_shared<memory_journal>(m.disk, [this, &m] { return fate_of_write(m); });
      h.journal = m.written;
    }
    m.actors = m.start(h);
    for (const auto& a : m.actors) go_down_with(m, a);
  }

  /// As in the real world, where the host's process ends.
  void go_down_with(machine& m, const caf::actor& a) {
    caf::actor_cast<caf::abstract_actor*>(a)->attach_functor(
        [this, &m, which = m.incarnation](const caf::error& why) {
          if (!why || !m.up || m.incarnation != which) return;
          ++failures;
          net.close(m.self);
          fall_after_handler(m);
        });
  }

  /// The host ends once the running handler has returned.
  void fall_after_handler(machine& m) {
    time.after_handler([this, &m, which = m.incarnation] {
      if (m.up && m.incarnation == which) go_down(m, down_s(downs));
    });
  }

  // The network closes first: messages that handlers still send in this instant go nowhere, as from
  // a process that was killed.
  void end(machine& m) {
    if (!m.up) return;
    m.up = false;
    ++crashes;
    net.close(m.self);
    if (m.written) m.written->kill();
    time.drop_events_of(m.actors);
    for (const auto& a : m.actors) caf::anon_send_exit(a, caf::exit_reason::kill);
    m.actors.clear();
    if (options.on_crash) options.on_crash(m.self);
  }

  double now_s() const { return to_s(time.now()); }

  // Crashes may overlap: the host returns after the latest end of all.
  void go_down(machine& m, double down_s) {
    m.down_until_s = std::max(m.down_until_s, now_s() + down_s);
    end(m);
    time.at(to_ns(m.down_until_s), [this, &m] {
      if (to_ns(now_s()) >= to_ns(m.down_until_s)) begin(m);
    });
  }

  double down_s(random_source& random) const {
    return options.faults.mean_down_s > 0 ? exponential(random, options.faults.mean_down_s) : 1;
  }

  double crashes_per_hour(address a) const {
    const auto& f = options.faults;
    if (a == controller_address) return f.controller_crashes_per_hour;
    if (is_gateway(world, a)) return f.gateway_crashes_per_hour;
    return is_node(world, a) ? f.node_crashes_per_hour : 0;
  }

  // Crashes are a Poisson process in working time: the next one is counted from the end of the
  // down-time.
  void plan_crash(machine& m, random_source random, double rate, double after_s) {
    const double at_s = std::max(after_s, now_s()) + exponential(random, 3600 / rate);
    const double down = down_s(random);
    const double until_s = options.faults.until_s;
    if (until_s > 0 && at_s >= until_s) return;
    time.at(to_ns(at_s), [this, &m, random, rate, down] {
      if (m.up) go_down(m, down);
      plan_crash(m, random, rate, now_s() + down);
    });
  }

  /// A host that dies during a write: none of its later messages is delivered.
  append_fate fate_of_write(machine& m) {
    auto fate = options.on_append ? options.on_append(now_s()) : append_fate::kept;
    if (fate == append_fate::kept && is_torn()) fate = append_fate::lost;
    if (fate == append_fate::lost || fate == append_fate::unreported) {
      ++torn_appends;
      net.close(m.self);
      fall_after_handler(m);
    }
    return fate;
  }

  /// Draws the clock faults of a host.
  void spoil_clock(machine& m, random_source random) {
    const auto& f = options.faults;
    constexpr double longest_up_s = 1e6;
    if (f.clock_drift > 0)
      m.clock->set_monotonic(longest_up_s * random.uniform(),
                             1 + f.clock_drift * (2 * random.uniform() - 1));
    if (f.wall_skew_s > 0) m.clock->set_wall_ahead(f.wall_skew_s * (2 * random.uniform() - 1));
    if (f.wall_steps_per_hour > 0) plan_step(m, random, f.from_s);
  }

  void plan_step(machine& m, random_source random, double after_s) {
    const auto& f = options.faults;
    const double at_s = after_s + exponential(random, 3600 / f.wall_steps_per_hour);
    if (f.until_s > 0 && at_s >= f.until_s) return;
    const double ahead_s = f.wall_skew_s * (2 * random.uniform() - 1);
    time.at(to_ns(at_s), [this, &m, random, ahead_s, at_s] {
      m.clock->set_wall_ahead(ahead_s);
      plan_step(m, random, at_s);
    });
  }

  bool is_torn() {
    const auto& f = options.faults;
    const double t = now_s();
    if (f.torn_append <= 0 || t < f.from_s || (f.until_s > 0 && t >= f.until_s)) return false;
    return torn.chance(f.torn_append);
  }

  virtual_options options;
  const cluster world;
  config cfg;
  std::unique_ptr<caf::actor_system> system;
  virtual_coordinator& time;
  random_source seeds;
  simulated_network net;
  random_source torn, downs, host_seeds;
  std::map<address, machine> machines;
  std::uint64_t crashes = 0, torn_appends = 0, failures = 0;
};

virtual_world::virtual_world(cluster c, virtual_options options)
    : impl_{std::make_unique<impl>(std::move(c), std::move(options))} {}

virtual_world::~virtual_world() = default;

caf::actor_system& virtual_world::system() {
  return *impl_->system;
}

void virtual_world::add_host(address a, start_function start) {
  impl_->add(a, std::move(start));
}

void virtual_world::crash(address a) {
  if (auto* m = impl_->find(a)) impl_->end(*m);
}

void virtual_world::crash(address a, double down_s) {
  if (auto* m = impl_->find(a)) impl_->go_down(*m, down_s);
}

void virtual_world::restart(address a) {
  if (auto* m = impl_->find(a)) impl_->begin(*m);
}

void virtual_world::set_wall_clock(address a, double ahead_s) {
  if (auto* m = impl_->find(a)) m->clock->set_wall_ahead(ahead_s);
}

std::shared_ptr<memory_disk> virtual_world::disk(address a) const {
  const auto* m = impl_->find(a);
  return m ? m->disk : nullptr;
}

bool virtual_world::is_up(address a) const {
  const auto* m = impl_->find(a);
  return m && m->up;
}

std::uint64_t virtual_world::incarnation(address a) const {
  const auto* m = impl_->find(a);
  return m ? m->incarnation : 0;
}

double virtual_world::slowdown(address a) const {
  double factor = 1;
  const auto now = impl_->time.now();
  for (const auto& s : impl_->options.faults.slow_nodes)
    if (now >= to_ns(s.from_s) && now < to_ns(s.until_s) && is_meant(impl_->world, a, s.node))
      factor *= s.factor;
  return factor;
}

double virtual_world::link_slowdown(std::uint32_t a, std::uint32_t b) const {
  const auto& sites = impl_->world.datacenters;
  double factor = 1;
  const auto now = impl_->time.now();
  for (const auto& s : impl_->options.faults.slow_links)
    if (now >= to_ns(s.from_s) && now < to_ns(s.until_s) &&
        ((sites[a].name == s.a && sites[b].name == s.b) ||
         (sites[a].name == s.b && sites[b].name == s.a)))
      factor *= s.factor;
  return factor;
}

void virtual_world::at(double time_s, std::function<void()> what) {
  impl_->time.at(to_ns(time_s), std::move(what));
}

void virtual_world::run_until(double time_s) {
  impl_->time.run_until(to_ns(time_s));
}

// After the last event the clock still advances to the limit, as a caller that steps to a time
// expects.
bool virtual_world::step(double limit_s) {
  const auto limit = to_ns(limit_s);
  if (impl_->time.step(limit)) return true;
  if (limit != never_ns) impl_->time.run_until(limit);
  return false;
}

double virtual_world::now_s() const {
  return impl_->now_s();
}

// All frames in order, and the state of every random stream: two runs that differ anywhere differ
// here, even if a different draw has had no effect yet.
std::uint64_t virtual_world::fingerprint() const {
  runtime::fingerprint all;
  const std::uint64_t frames = impl_->net.fingerprint_so_far();
  all.add(std::span{&frames, 1});
  const auto& i = *impl_;
  for (const auto& r : {i.net.random(), i.torn, i.downs}) all.add(r.state());
  for (const auto& [a, m] : impl_->machines) all.add(m.random.state());
  return all.value();
}

virtual_world::counters virtual_world::count() const {
  const auto& n = impl_->net.counters();
  return {n,
          n.delivered,
          n.dropped(),
          impl_->time.events(),
          impl_->time.resumes(),
          impl_->crashes,
          impl_->torn_appends,
          impl_->failures};
}

}  // namespace troupe::runtime
