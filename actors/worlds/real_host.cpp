#include "actors/worlds/real_host.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <mutex>

#include <caf/all.hpp>

#include "actors/node/local_process_runner.hpp"
#include "actors/protocol/failure_watch.hpp"
#include "actors/protocol/host_threads.hpp"
#include "actors/worlds/end_watch.hpp"
#include "actors/worlds/wiring.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "messages/domain/device_kind.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "runtime/keeper/state_directory.hpp"
#include "runtime/process/free_ports.hpp"
#include "runtime/zeromq/transport.hpp"

namespace troupe::actors {

namespace {

/// Blocks SIGINT and SIGTERM, which only run() accepts. Call before starting threads.
void hold_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // writing to a closed pipe is an error of write()
}

/// The gateways that this one connects to, if their endpoints are known: one connection for small
/// frames, and enough for tensors.
std::vector<runtime::zeromq_link> links_of(const real_host_options& options, const cluster& c,
                                           address self) {
  std::vector<runtime::zeromq_link> links;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d) {
    const auto other = gateway_address(d);
    if (!greets(self, other) || c.datacenters[d].removed) continue;
    auto at = c.datacenters[d].gateway;
    for (const auto& [in_file, given] : options.gateways)
      if (options.cluster->datacenters[in_file].name == c.datacenters[d].name) at = given;
    if (at.empty())
      runtime::log(runtime::log_level::warn, "gateway", "no address known for another gateway",
                   {{"who", host_name(c, other)}});
    else
      links.push_back({other, at,
                       1 + (options.connections > 0 ? options.connections
                                                    : wan_connections(c, datacenter_of(self), d))});
  }
  return links;
}

}  // namespace

std::string listen_of_node(const std::string& gateway, bool has_keys) {
  if (gateway.starts_with("tcp://127.")) return "tcp://127.0.0.1:*";
  return gateway.starts_with("tcp://") && has_keys ? "tcp://*:*" : "";
}

/// One TCP connection over a long way carries less than the link: its window and losses limit it,
/// which the cluster file's connection_gbps says.
std::uint32_t wan_connections(const cluster& c, std::uint32_t a, std::uint32_t b) {
  constexpr double max_connections = 16;
  const auto* w = wan_between(c, a, b);
  if (w == nullptr || w->connection_gbps <= 0) return 1;
  return static_cast<std::uint32_t>(
      std::clamp(std::ceil(w->node_gbps / w->connection_gbps), 1.0, max_connections));
}

struct real_host::impl {
  end_watch watch_of_end;  // destroyed last
  real_host_options options;
  std::unique_ptr<runtime::state_directory> state;
  std::shared_ptr<process_runner> programs;  // of a node
  host_threads config;
  std::unique_ptr<caf::actor_system> system;
  runtime::host host;
  std::shared_ptr<runtime::zeromq_transport> net;
  std::vector<caf::actor> actors;
  client_actor client;
  actors::completions completions;  // of a front
  shared_cluster cluster;           // the transport's and the actors'
  std::function<void()> start_actors;
  std::atomic<bool> admitted = false;  // by the host that it connects to
  std::atomic<bool> removed = false;   // from the cluster, and its work has ended
  std::atomic<bool> ended = false;     // by request, and its work with it
  std::atomic<bool> waits = false;     // for its work, before it ends
  bool asked_to_end = false;
  std::atomic<bool> says_it_waits = false;
  std::mutex mutex;  // its transport's thread starts the actors
  bool ending = false;
  failure_watch failures;

  /// The state directory, the incarnation, and a node's programs. Call before starting threads.
  expected<void> take_state(const real_host_options& o, address self) {
    host.incarnation = runtime::make_incarnation();
    if (o.state.empty()) return {};
    auto taken = runtime::state_directory::open(o.state);
    if (!taken) return refuse(taken.error());
    state = std::move(*taken);
    const auto next = state->next_incarnation();
    if (!next) return refuse(next.error());
    host.incarnation = *next;
    if (!is_node(*o.cluster, self)) return {};
    auto made = make_process_launcher(o.state, host.incarnation, state->lock());
    if (!made) return refuse(made.error());
    programs = std::move(*made);
    return {};
  }

  /// The host's place is known now.
  void on_admitted() {
    const std::lock_guard guard{mutex};
    if (ending) return;
    if (admitted = true; says_it_waits)
      runtime::log(runtime::log_level::info, "host", "reached the host that it connects to",
                   {{"at", options.upstream}});
    host.self = net->self();
    if (is_gateway(*cluster, host.self))
      for (const auto& l : links_of(options, *cluster, host.self))
        if (auto ok = net->add_link(l); !ok)
          runtime::log(runtime::log_level::error, "gateway", "cannot connect to another gateway",
                       {{"why", ok.error().text}});
    // Only now: the actors' options contain the host's number, which a node that joins gets from
    // the controller.
    start_actors();
    watch();
  }

  /// A node's work gets its grace first: `ended` says when that is over. False: nothing is waited
  /// for, here or when it has been asked before.
  bool end_in_order() {
    const std::lock_guard guard{mutex};
    if (!is_node(*cluster, host.self) || actors.empty() || std::exchange(asked_to_end, true))
      return false;
    caf::anon_send(caf::actor_cast<node_actor>(actors.front()), end_node{});
    return true;
  }

  /// For `troupe up` and `troupe down`, which wait for this host.
  std::string waiting_file() const {
    return (std::filesystem::path{options.state} / waiting_file_name).string();
  }

  /// Actors live as long as the process: one that ends has failed.
  void watch() {
    for (const auto& a : actors) failures.add(a);
  }

  ~impl() {
    {
      const std::lock_guard guard{mutex};
      ending = true;
    }
    if (host.self == controller_address && system) watch_of_end.begin(failures.why() ? 1 : 0);
    for (const auto& a : actors) caf::anon_send_exit(a, caf::exit_reason::user_shutdown);
    if (client) caf::anon_send_exit(client, caf::exit_reason::user_shutdown);
    std::error_code ignored;
    if (waits) std::filesystem::remove(waiting_file(), ignored);
  }
};

real_host::real_host(std::unique_ptr<impl> i) : impl_{std::move(i)} {}
real_host::~real_host() = default;

expected<std::unique_ptr<real_host::impl>> real_host::open(real_host_options options,
                                                           std::string name, address self,
                                                           const prepare_state& prepare) {
  if (!is_client(self)) {
    hold_signals();
    runtime::make_files_private();
  }
  auto i = std::make_unique<impl>();
  i->host.clock = std::make_shared<runtime::real_clock>();
  // First, while there is one thread: the state directory's lock keeps a second process of this
  // host out, and programs are started from a forked child.
  if (auto ok = i->take_state(options, self); !ok) return refuse(ok.error());
  if (prepare)
    if (auto ok = prepare(*i); !ok) return refuse(ok.error());
  // Two hosts with one incarnation, as after a copied state directory, still draw different
  // numbers.
  i->host.random = random_source{i->host.incarnation ^ (std::uint64_t{self} << 40)};
  i->host.self = self;
  runtime::zeromq_options z;
  z.name = std::move(name);
  z.client = is_client(self);
  if (options.cluster) i->cluster = options.cluster;
  z.cluster = i->cluster;
  z.waits_for_cluster = self == controller_address;
  if (!is_client(self) && self != controller_address)
    z.on_admitted = [host = i.get()] { host->on_admitted(); };
  z.incarnation = i->host.incarnation;
  z.listen = options.listen;
  z.upstream = options.upstream;
  z.keys = options.keys;
  z.client_key = options.client_key;
  if (options.cluster && is_node(*options.cluster, self)) z.connections = runtime::node_connections;
  auto net = runtime::zeromq_transport::open(std::move(z));
  if (!net) return refuse(net.error());
  i->net = *net;
  i->host.net = *net;
  i->options = std::move(options);
  i->system = std::make_unique<caf::actor_system>(i->config);
  return i;
}

expected<std::unique_ptr<real_host>> real_host::controller(
    real_host_options options, std::shared_ptr<const planners::policy> policy, bool local) {
  const auto file = (std::filesystem::path{options.state} / "journal.sqlite").string();
  const bool accept_older = options.accept_older_journal;
  // Opened before the transport listens: a controller that cannot read its journal must answer no
  // one.
  const auto open_journal = [&](impl& i) -> expected<void> {
    auto journal = runtime::sqlite_journal::open(file, {.accept_older = accept_older});
    if (!journal) return refuse(journal.error());
    i.host.journal = *journal;
    return {};
  };
  auto i = open(std::move(options), host_name(*options.cluster, controller_address),
                controller_address, open_journal);
  if (!i) return refuse(i.error());
  controller_options c;
  c.cluster = (*i)->cluster;
  c.policy = std::move(policy);
  c.gather_s = c.policy->traits().gather_s;
  c.local = local;
  c.boot = runtime::boot_number();
  (*i)->actors = start_controller(*(*i)->system, (*i)->host, c).all;
  (*i)->watch();
  return std::unique_ptr<real_host>{new real_host{std::move(*i)}};
}

expected<std::unique_ptr<real_host>> real_host::gateway(real_host_options options,
                                                        std::uint32_t datacenter) {
  const auto self = gateway_address(datacenter);
  auto i = open(std::move(options), host_name(*options.cluster, self), self);
  if (!i) return refuse(i.error());
  (*i)->start_actors = [i = i->get()] {
    i->actors =
        start_gateway(*i->system, i->host, i->cluster, false, {}, [i] { i->removed = true; });
  };
  (*i)->net->begin();
  return std::unique_ptr<real_host>{new real_host{std::move(*i)}};
}

expected<std::unique_ptr<real_host>> real_host::node(real_host_options options, node_index n) {
  const auto self = node_address(n);
  if (options.listen.empty())
    options.listen = listen_of_node(options.upstream, !options.keys.empty());
  auto i = open(std::move(options), host_name(*options.cluster, self), self);
  if (!i) return refuse(i.error());
  node_options how;
  how.cluster = (*i)->cluster;
  how.on_removed = [i = i->get()] { i->removed = true; };
  how.on_ended = [i = i->get()] { i->ended = true; };
  how.on_waiting = [i = i->get()](const awaited_work& w) {
    i->waits = true;
    (void)write_whole_file(i->waiting_file(), fmt::format("{:g}\n{}\n", w.within_s, w.sentence));
  };
  std::error_code ignored;
  std::filesystem::remove((*i)->waiting_file(), ignored);
  how.process_runner = (*i)->programs;
  how.new_state = (*i)->state && (*i)->state->is_new();
  how.backend = name_of(device_kind::cpu);
  how.make_cuda = (*i)->options.make_cuda;
  how.observer = std::make_shared<work_log>();
  (*i)->start_actors = [i = i->get(), how = std::move(how)] {
    i->actors = start_node(*i->system, i->host, how);
  };
  (*i)->net->begin();
  return std::unique_ptr<real_host>{new real_host{std::move(*i)}};
}

expected<std::unique_ptr<real_host>> real_host::front(real_host_options options,
                                                      std::uint32_t number) {
  const auto self = front_address(number);
  auto i = open(std::move(options), host_name(*options.cluster, self), self);
  if (!i) return refuse(i.error());
  (*i)->start_actors = [i = i->get()] {
    i->actors =
        start_front(*i->system, i->host, i->cluster, i->completions, [i] { i->removed = true; });
  };
  (*i)->net->begin();
  return std::unique_ptr<real_host>{new real_host{std::move(*i)}};
}

expected<std::unique_ptr<real_host>> real_host::client(real_host_options options,
                                                       double patience_s) {
  auto i = open(std::move(options), "client", first_client_address);
  if (!i) return refuse(i.error());
  (*i)->client = start_client(*(*i)->system, (*i)->host);
  if (auto ok = (*i)->net->wait_until_greeted(patience_s); !ok) return refuse(ok.error());
  return std::unique_ptr<real_host>{new real_host{std::move(*i)}};
}

std::string real_host::endpoint() const {
  return impl_->net->endpoint();
}

const completions& real_host::completions() const {
  return impl_->completions;
}

const shared_cluster& real_host::cluster() const {
  return impl_->cluster;
}

expected<void> real_host::run(const std::function<void()>& meanwhile) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  // SIGINT and SIGTERM are blocked in all threads, and taken here: no code runs in a signal
  // handler.
  const timespec look_every{0, 100'000'000};
  // In which hosts that are started together find each other.
  constexpr double silent_s = 3;
  const runtime::stopwatch since;
  while (sigtimedwait(&set, nullptr, &look_every) < 0 || impl_->end_in_order()) {
    if (impl_->ended) return {};
    if (const auto why = impl_->failures.why()) return refuse(reason::kind::unavailable, *why);
    if (!impl_->options.upstream.empty() && !impl_->admitted && since.s() > silent_s &&
        !impl_->says_it_waits.exchange(true))
      runtime::log(runtime::log_level::warn, "host", "waits for the host that it connects to",
                   {{"at", impl_->options.upstream}});
    if (impl_->removed)
      return refuse(reason::kind::refused, "{}{} was removed from the cluster",
                    is_node(*impl_->cluster, impl_->host.self) ? "node " : "",
                    host_name(*impl_->cluster, impl_->host.self));
    // A newer instance of this host is connected. Any other refusal may be resolved at the other
    // side: the transport logs it and retries, and work continues until its lease expires.
    if (auto why = impl_->net->refused(); why && why->code == reason::kind::stale)
      return refuse(*why);
    if (meanwhile) meanwhile();
  }
  return {};
}

answer real_host::ask(message request, double patience_s) {
  // Blocks the calling thread, which is none of the actor system's.
  caf::scoped_actor self{*impl_->system};
  answer result;
  self->request(impl_->client, caf::infinite, actors::ask{std::move(request), patience_s})
      .receive([&](const answer& a) { result = a; },
               [&](const caf::error& e) {
                 result.reply = refuse(reason::kind::unavailable, caf::to_string(e));
               });
  return result;
}

}  // namespace troupe::actors
