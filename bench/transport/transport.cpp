// bench_transport [MESSAGES]: what codec, credits and actors leave of ZeroMQ's speed.
//
// One process, over loopback, from a thread that sends to one that receives. "raw" is cppzmq alone:
// a DEALER that sends frames of the same sizes to a ROUTER that reads them, two a message as the
// transport has them, or, for small messages, one. "actors" encodes every message, sends it through
// the transport, posts it to a CAF actor, decodes it there and gives credit; it puts small messages
// that wait into one frame, raw sends each alone. Both are run in turns; figures are medians, and
// the share is the median of the ratios of neighbouring runs: a busy machine slows both. Where the
// share is above 100 %, raw is no ceiling: it does without the transport's larger buffers and its
// memory that is kept, so the row has no cost to measure.

#include <fmt/format.h>

#include <caf/all.hpp>
#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "harness/runs.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/zeromq/transport.hpp"

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::frame)

namespace troupe::bench {
namespace {

using namespace troupe::runtime;

constexpr address gateway = 1;

cluster one_datacenter() {
  cluster c;
  c.name = "bench";
  c.datacenters = {{"dc", ""}};
  return c;
}

// About a hundred bytes with its envelope: a node that does two things.
node_report small_report(std::uint64_t n) {
  node_report r;
  r.incarnation = 3;
  r.sequence = n;
  r.parts.resize(2);
  for (auto& p : r.parts) p.detail = "step 1200 of 5000, loss 3.14";
  return r;
}

struct work {
  std::string endpoint;
  std::uint64_t messages = 0;
  payload body;
  int runs = 25;
  bool one_frame = false;  // raw sends a small message as one frame
};

std::size_t header_bytes(const work& w) {
  return encode(gateway, controller_address, small_report(w.messages)).header.bytes().size();
}

double raw_s(const work& w) {
  zmq::context_t here, there;
  zmq::socket_t router{here, zmq::socket_type::router}, dealer{there, zmq::socket_type::dealer};
  router.set(zmq::sockopt::rcvhwm, 4096);
  dealer.set(zmq::sockopt::sndhwm, 4096);
  router.bind(w.endpoint);
  dealer.connect(router.get(zmq::sockopt::last_endpoint));
  const std::vector<std::byte> header(header_bytes(w));
  const auto bytes = w.body.bytes();
  const auto send = [&] {
    if (w.one_frame) {
      dealer.send(zmq::buffer(header), zmq::send_flags::none);
      return;
    }
    dealer.send(zmq::buffer(header), zmq::send_flags::sndmore);
    if (bytes.empty()) {
      dealer.send(zmq::message_t{}, zmq::send_flags::none);
    } else {
      const auto keep = [](void*, void*) {};
      dealer.send(zmq::message_t{const_cast<std::byte*>(bytes.data()), bytes.size(), keep},
                  zmq::send_flags::none);
    }
  };
  const auto receive = [&] {
    zmq::message_t id, head, body;
    (void)router.recv(id);
    (void)router.recv(head);
    if (!w.one_frame) (void)router.recv(body);
  };
  send();
  receive();
  const stopwatch watch;
  std::thread sender{[&] {
    for (std::uint64_t n = 0; n < w.messages; ++n) send();
  }};
  for (std::uint64_t n = 0; n < w.messages; ++n) receive();
  const auto s = watch.s();
  sender.join();
  return s;
}

struct sink_state {
  sink_state() = default;
  std::uint64_t seen = 0;
};

caf::behavior sink(caf::stateful_actor<sink_state>* self, std::shared_ptr<transport> net,
                   std::uint64_t last, std::promise<void>* done) {
  return {[=](const frame& f) {
    const auto m = decode(f.header.bytes());
    if (!m || !std::holds_alternative<node_report>(m->second)) std::abort();
    net->handled(f);
    if (++self->state.seen == last) done->set_value();
  }};
}

std::shared_ptr<zeromq_transport> open(zeromq_options o) {
  auto t = zeromq_transport::open(std::move(o));
  if (!t) {
    fmt::print(stderr, "{}\n", t.error().text);
    std::exit(1);
  }
  return *t;
}

double actors_s(caf::actor_system& system, const work& w) {
  zeromq_options o;
  o.name = "controller";
  o.cluster = one_datacenter();
  o.listen = w.endpoint;
  auto controller = open(o);
  o.name = "dc/gateway";
  o.upstream = controller->endpoint();
  o.listen.clear();
  auto sender = open(o);
  std::promise<void> done;
  auto actor =
      system.spawn(sink, std::static_pointer_cast<transport>(controller), w.messages, &done);
  controller->listen([actor](frame f) { caf::anon_send(actor, std::move(f)); });
  sender->listen([](const frame&) {});
  if (!sender->wait_until_greeted(10)) std::exit(1);
  const stopwatch watch;
  for (std::uint64_t n = 0; n < w.messages; ++n) {
    const auto f = encode(gateway, controller_address, small_report(n), w.body);
    while (!sender->send(controller_address, f))
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  done.get_future().wait();
  const auto s = watch.s();
  caf::anon_send_exit(actor, caf::exit_reason::kill);
  return s;
}

// Prints a line: raw speed, and what of it actors reach.
void compare(caf::actor_system& system, const char* name, const work& w, double required) {
  // The two in turn, so that the machine's moods meet both; medians, of the ratios pair by pair,
  // too.
  std::vector<double> raws, actor_runs, shares;
  for (int run = 0; run < w.runs; ++run) {
    raws.push_back(raw_s(w));
    actor_runs.push_back(actors_s(system, w));
    shares.push_back(raws.back() / actor_runs.back());  // of speed: times the other way round
  }
  const double raw = median(raws), actors = median(actor_runs), share = median(shares);
  const auto bytes = static_cast<double>(header_bytes(w) + w.body.bytes().size());
  const auto rate = [&](double s) { return static_cast<double>(w.messages) / s; };
  fmt::print("{:<28} {:>9.0f} {:>12.0f} {:>9.3f} {:>12.0f} {:>9.3f} {:>8.1f} % {:>7.0f} %  {}\n",
             name, bytes, rate(raw), rate(raw) * bytes / 1e9, rate(actors),
             rate(actors) * bytes / 1e9, 100 * share, 100 * required,
             share >= required ? "yes" : "NO");
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::bench;
  const auto messages = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 60'000;
  caf::actor_system_config config;
  config.set("scheduler.max-threads", std::size_t{2});
  config.set("scheduler.policy", caf::atom("sharing"));
  caf::actor_system system{config};
  fmt::print("{:<28} {:>9} {:>12} {:>9} {:>12} {:>9} {:>10} {:>9}\n", "ZeroMQ over loopback",
             "bytes", "raw 1/s", "GB/s", "actors 1/s", "GB/s", "share", "required");
  const std::string tcp = "tcp://127.0.0.1:*", ipc = "ipc://*";
  const payload megabyte{std::vector<std::byte>(1u << 20)};
  const payload large{std::vector<std::byte>(32u << 20)};
  compare(system, "small, raw in 2 frames, tcp", {tcp, messages, {}}, 0.25);
  compare(system, "small, raw in 1 frame, tcp", {tcp, messages, {}, 25, true}, 0.20);
  compare(system, "1 MB payloads, tcp", {tcp, messages / 40, megabyte}, 0.90);
  compare(system, "32 MB payloads, tcp", {tcp, messages / 1000, large, 9}, 1.00);
  compare(system, "32 MB payloads, ipc", {ipc, messages / 1000, large, 9}, 1.00);
}
