#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/serving/prefill/prefill_controller.hpp"
#include "harness/small_cluster.hpp"
#include "messages/base/random.hpp"
#include "messages/base/time.hpp"

// A prefill controller among decoders, guests and a trainer, over a network that loses, repeats and
// reorders messages, on hosts that crash. Decoders and guests follow docs/serving_protocol.md.

namespace troupe::actors {

namespace {

constexpr lease_id lent = 7;
constexpr std::uint32_t requests = 1000, hosts = 2;  // each has a guest and a decoder
constexpr double token_s = 0.001, iteration_s = 4;   // busy for the first half of it

class faulty_world {
 public:
  explicit faulty_world(std::uint64_t seed) : random_{seed} {
    for (std::uint32_t i = 0; i < hosts; ++i) address_[i] = node_address(i);
    restart_gateway();
    every(1, [this] { offer(); });
    for (std::uint32_t i = 0; i < hosts; ++i) {
      begin_iteration(i, 0);
      every(0.05, [this, i] { run_guest(i); });
      every(0.05, [this, i] { run_decoder(i); });
    }
    every(0.05, [this] { wake_controller(); });
    for (std::uint32_t n = 0; n < requests; ++n)
      at(random_.uniform() * 300, [this, n] { arrive(n); });
    for (int k = 0; k < 3; ++k) at(random_.uniform() * 300, [this] { restart_gateway(); });
    for (int k = 0; k < 2; ++k) at(random_.uniform() * 300, [this] { ++trainer_; });
    for (int k = 0; k < 20; ++k)
      at(random_.uniform() * 300, [this] { guests_[random_.below(hosts)] = {}; });
  }

  void run() {
    while (!due_.empty() && due_.begin()->first.first < 500) {
      now_s_ = due_.begin()->first.first;
      const auto what = std::move(due_.begin()->second);
      due_.erase(due_.begin());
      what();
    }
  }

  void check() const {
    REQUIRE(requests_.size() == requests);
    std::map<std::string, int> ends;
    for (const auto& [name, r] : requests_) {
      REQUIRE(r.ends == 1);
      ++ends[r.how];
    }
    CHECK(ends["whole"] > 300);
    CHECK(ends["declined"] + ends["late"] + ends["gone"] + ends["silent"] > 0);
    CHECK(ends["left"] > 30);
    CHECK(controller_->promised() == 0);
    for (const auto& g : guests_) CHECK(g.orders.empty());
    CHECK(cancels_.empty());
    const auto& c = controller_->counts();
    CHECK(c.promised == c.ended + c.cancelled + c.expired + c.lost);
    CHECK(c.rejected == 0);
  }

 private:
  struct order {
    prefill_order about;
    double latest_s = 0;
  };
  struct guest {
    std::map<std::uint64_t, order> orders;  // by sequence
    std::set<prefill_name> over;
    double free_s = 0;
  };
  struct request {
    double arrived_s = 0, asked_s = -1, late_s = 0;
    bool promised = false;
    int ends = 0;
    std::string how;
  };

  void at(double s, std::function<void()> what) { due_[{s, ++sequence_}] = std::move(what); }
  void every(double s, const std::function<void()>& what) {
    at(now_s_ + s, [this, s, what] {
      what();
      every(s, what);
    });
  }
  /// Over the network.
  void deliver(std::function<void()> what) {
    const bool faulty = now_s_ < 350;
    if (faulty && random_.chance(0.05)) return;
    const double delay_s = 1e-4 + (faulty && random_.chance(0.2) ? random_.uniform() : 0);
    if (faulty && random_.chance(0.05)) at(now_s_ + random_.uniform(), what);
    at(now_s_ + delay_s, std::move(what));
  }
  void to_controller(address from, const message& m) {
    deliver([this, from, m] {
      send_all(controller_->on_message(from, m, {}, now_s_));
      const auto* o = std::get_if<bubble_offer>(&m);
      if (!o || o->trainer <= known_trainer_) return;
      // Guests of another trainer know nothing of what was promised before.
      known_trainer_ = o->trainer;
      REQUIRE(controller_->promised() == 0);
    });
  }
  void wake_controller() {
    if (controller_->next_s() <= now_s_) send_all(controller_->on_time(now_s_));
  }
  void send_all(const prefill_controller::outbox& out) {
    for (const auto& o : out)
      deliver([this, o] { arrive_at(o.to == address_[0] ? 0 : 1, o.what); });
  }
  void arrive_at(std::uint32_t host, const message& m) {
    if (const auto* r = std::get_if<prefill_reply>(&m)) on_reply(*r);
    if (const auto* o = std::get_if<prefill_order>(&m)) on_order(host, *o);
    if (const auto* c = std::get_if<cancel_prefill>(&m)) on_cancel(host, c->name);
    if (const auto* p = std::get_if<prefill_progress>(&m);
        p && p->now != prefill_progress::state::ended) {
      cancels_.erase(p->name);
      end(p->name, "gone");
    }
  }
  void restart_gateway() {
    controller_ = std::make_unique<prefill_controller>(cluster_, 0, ++incarnation_);
    known_trainer_ = 0;
    serving_leases all;
    all.epoch = 1;
    all.models.push_back(harness::model_named("m"));
    lending_lease lends{lent, {4}, "m"};
    for (std::uint32_t i = 0; i < hosts; ++i) {
      all.decoders.push_back({9, i, 1, 0});
      lends.nodes.push_back(i);
    }
    all.lendings.push_back(lends);
    send_all(controller_->on_message(controller_address, all, {}, now_s_));
  }

  // -- the training

  void offer() {
    bubble_offer o;
    o.lease = lent;
    o.trainer = trainer_;
    o.sequence = 1;
    o.how.model.name = "m";
    o.how.op_ms = 1;
    o.iteration_s = iteration_s;
    for (std::uint32_t i = 0; i < hosts; ++i) {
      guest_place g;
      g.stage = {lent, i, 0};
      g.node = address_[i];
      g.layers = 1;
      g.token_s = token_s;
      o.groups.push_back({{g}, 0, 0});
      o.stages.push_back({g.stage, {{0, iteration_s / 2}}});
    }
    to_controller(node_address(4), o);
  }
  void begin_iteration(std::uint32_t host, std::uint64_t n) {
    to_controller(address_[host], stage_signal{{lent, host, 0}, trainer_, n, 0});
    at(now_s_ + iteration_s * (1 + 0.05 * random_.uniform()),
       [this, host, n] { begin_iteration(host, n + 1); });
  }

  // -- guests

  void progress(std::uint32_t host, const prefill_name& name, prefill_progress::state now) {
    prefill_progress p;
    p.name = name;
    p.now = now;
    to_controller(address_[host], p);
  }
  void on_order(std::uint32_t host, const prefill_order& o) {
    auto& g = guests_[host];
    using enum prefill_progress::state;
    if (g.over.contains(o.name)) return progress(host, o.name, gone);
    for (const auto& [sequence, known] : g.orders)
      if (known.about.name == o.name) return progress(host, o.name, held);
    REQUIRE(!g.orders.contains(o.sequence));
    REQUIRE(o.latest_s > 0);
    g.orders[o.sequence] = {o, now_s_ + o.latest_s};
    progress(host, o.name, held);
  }
  void on_cancel(std::uint32_t host, const prefill_name& name) {
    auto& g = guests_[host];
    std::erase_if(g.orders, [&](const auto& entry) { return entry.second.about.name == name; });
    g.over.insert(name);
    progress(host, name, prefill_progress::state::gone);
  }
  void run_guest(std::uint32_t host) {
    auto& g = guests_[host];
    std::erase_if(g.orders, [&](const auto& entry) { return entry.second.latest_s < now_s_; });
    if (g.orders.empty() || g.free_s > now_s_) return;
    const auto o = g.orders.begin()->second.about;
    g.orders.erase(g.orders.begin());
    g.over.insert(o.name);
    g.free_s = now_s_ + 2 * o.tokens * token_s;
    at(g.free_s, [this, host, o] {
      progress(host, o.name, prefill_progress::state::ended);
      // Its blocks are repeated until they have come.
      at(now_s_ + 0.2 * random_.uniform(), [this, o] { end(o.name, "whole"); });
    });
  }

  // -- decoders

  void arrive(std::uint32_t n) {
    const prefill_name name{address_[n % hosts], 9, n + 1};
    requests_[name].arrived_s = now_s_;
    requests_[name].late_s = now_s_ + 0.5;
    open_.insert(name);
    if (random_.chance(0.1))
      at(now_s_ + 2 * random_.uniform(), [this, name] { end(name, "left"); });
  }
  void on_reply(const prefill_reply& r) {
    auto& q = requests_.at(r.name);
    if (!r.declined.text.empty()) return end(r.name, "declined");
    if (q.promised || q.ends > 0) return;
    q.promised = true;
    q.late_s = now_s_ + 2 * r.promised_s + 1;
  }
  void end(const prefill_name& name, const std::string& how) {
    auto& q = requests_.at(name);
    // A prompt that has ended, or was given up, ends only once.
    if (q.ends > 0) return;
    ++q.ends;
    q.how = how;
    open_.erase(name);
    cancels_[name] = {now_s_, 40};
  }
  void run_decoder(std::uint32_t host) {
    for (const auto& name : std::set<prefill_name>{open_}) {
      auto& q = requests_.at(name);
      if (name.decoder != address_[host]) continue;
      if (now_s_ >= q.late_s) {
        end(name, q.promised ? "late" : "silent");
      } else if (!q.promised && now_s_ >= q.asked_s + 0.1) {
        q.asked_s = now_s_;
        const auto tokens = 64 + static_cast<std::uint32_t>(name.number % 9) * 64;
        to_controller(name.decoder,
                      prefill_request{name, "m", tokens, 6 - (now_s_ - q.arrived_s), 0});
      }
    }
    for (auto it = cancels_.begin(); it != cancels_.end();) {
      auto& [due_s, left] = it->second;
      if (it->first.decoder == address_[host] && due_s <= now_s_) {
        to_controller(it->first.decoder, cancel_prefill{it->first});
        due_s += 0.25;
        --left;
      }
      it = left == 0 ? cancels_.erase(it) : std::next(it);
    }
  }

  random_source random_;
  std::shared_ptr<const cluster> cluster_ = harness::small_cluster();
  std::array<address, hosts> address_{};
  std::unique_ptr<prefill_controller> controller_;
  std::uint64_t incarnation_ = 0, trainer_ = 1;
  std::uint64_t known_trainer_ = 0;  // to the controller
  std::array<guest, hosts> guests_;
  std::map<prefill_name, request> requests_;
  std::set<prefill_name> open_;
  std::map<prefill_name, std::pair<double, int>> cancels_;
  double now_s_ = 0;
  std::uint64_t sequence_ = 0;
  std::map<std::pair<double, std::uint64_t>, std::function<void()>> due_;
};

}  // namespace

TEST_CASE("whatever is lost, every prefill ends once, and nobody keeps anything of it") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    faulty_world w{seed};
    w.run();
    w.check();
  }
}

}  // namespace troupe::actors
