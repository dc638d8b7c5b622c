#include <malloc.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "actors/protocol/host_threads.hpp"
#include "actors/worlds/wiring.hpp"
#include "harness/resident_bytes.hpp"
#include "harness/scratch.hpp"
#include "messages/codec/codec.hpp"
#include "processes/trainings.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/zeromq/transport.hpp"

// Tensors between nodes of one datacenter, in real processes.

using namespace troupe;
using namespace troupe::test;

namespace {

gateway_traffic traffic_of_all(const query_reply& r) {
  gateway_traffic sum;
  for (const auto& g : r.gateways) {
    sum.wan_sent_bytes += g.traffic.wan_sent_bytes;
    sum.wan_received_bytes += g.traffic.wan_received_bytes;
    sum.relayed_bytes += g.traffic.relayed_bytes;
  }
  return sum;
}

job_spec in_one_datacenter(const fixture& f, std::uint64_t iterations) {
  auto job = two_stages(f, iterations);
  job.pipeline.stages_per_datacenter = 2;
  job.train->checkpoint.clear();
  return job;
}

/// The connections to a process's Unix socket, closed under it as a network would.
int break_connections_to(pid_t process, const std::string& socket_name) {
  int broken = 0;
  const auto pidfd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  REQUIRE(pidfd >= 0);
  for (const auto& entry : fs::directory_iterator{fmt::format("/proc/{}/fd", process)}) {
    const auto theirs = std::stoi(entry.path().filename().string());
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, theirs, 0));
    if (fd < 0) continue;
    sockaddr_un at{}, peer{};
    socklen_t size = sizeof at, peer_size = sizeof peer;
    const bool connected = ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0 &&
                           ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0;
    if (connected && at.sun_family == AF_UNIX && std::string{at.sun_path}.ends_with(socket_name))
      broken += ::shutdown(fd, SHUT_RDWR) == 0 ? 1 : 0;
    ::close(fd);
  }
  ::close(pidfd);
  return broken;
}

}  // namespace

TEST_CASE(
    "stages in one datacenter exchange tensors past its gateway, and over the WAN through it") {
  fixture f{"direct-tensors", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  const auto report = trained(f, in_one_datacenter(f, 5));
  const auto jobs = f.jobs();
  REQUIRE(jobs.jobs.front().where.size() == 2);  // nodes
  REQUIRE(report.wan_bytes == 0);
  REQUIRE(jobs.gateways.size() == 3);
  CHECK(traffic_of_all(jobs) == gateway_traffic{});

  auto across = two_stages(f, 5);
  across.train->checkpoint.clear();
  const auto over_wan = trained(f, across);
  REQUIRE(over_wan.wan_bytes > 0);
  CHECK(f.wait_until([&](const query_reply& r) {
    const auto t = traffic_of_all(r);
    return t.wan_sent_bytes >= over_wan.wan_bytes && t.wan_received_bytes == t.wan_sent_bytes &&
           t.relayed_bytes == 0;
  }));
}

TEST_CASE("a direct connection that breaks with tensors on it costs under 2 s and no lease") {
  fixture f{"direct-broken", "clusters/three-sites.yaml"};
  REQUIRE(f.wait_for_nodes());
  const auto undisturbed = trained(f, in_one_datacenter(f, 60));
  REQUIRE(traffic_of_all(f.jobs()) == gateway_traffic{});

  const auto id = f.submit(in_one_datacenter(f, 60));
  int broken = 0;
  for (const std::uint64_t after : {5, 15, 25, 35}) {
    REQUIRE(f.wait_until([&](const auto&) { return iterations(f, id) >= after; }));
    const auto jobs = f.jobs();
    for (const auto& place : jobs.jobs.back().where) {
      const auto& name = jobs.nodes[place.node].name;
      broken += break_connections_to(f.cluster->id(name), "/" + name);
    }
  }
  CHECK(broken >= 2);  // on a busy machine the training may end before the later ones
  REQUIRE(f.wait_until(all_final));
  const auto after = how(f, id);
  INFO(fmt::format("{}", fmt::join(after.events, "\n")));
  CHECK(f.jobs().jobs.back().state == job_state::finished);
  CHECK(f.jobs().jobs.back().progress.attempts == 1);
  check_same_curve(undisturbed, after);
  const auto longest_s = [](const training_report& r) {
    double longest = 0;
    for (const auto& i : r.iterations) longest = std::max(longest, i.end_s - i.begin_s);
    return longest;
  };
  CHECK(longest_s(after) < longest_s(undisturbed) + 2);
}

// ---- 2 GiB

namespace {

constexpr address gateway_1 = 1, node_a = node_address(0), node_b = node_address(1);

cluster one_datacenter() {
  cluster c;
  c.name = "one";
  c.gpus.push_back({.name = "V100-32GB", .memory_gb = 32, .source = ""});
  c.datacenters = {{"dc", ""}};
  c.nodes = {{"a", 0, 0, 1, {}, {}}, {"b", 0, 0, 1, {}, {}}};
  return c;
}

std::shared_ptr<runtime::zeromq_transport> open_host(const cluster& c, address a,
                                                     const std::string& listen,
                                                     const std::string& upstream) {
  runtime::zeromq_options o;
  o.cluster = c;
  o.name = host_name(c, a);
  o.incarnation = 1;
  o.listen = listen;
  o.upstream = upstream;
  if (is_node(c, a)) o.connections = 2;
  auto net = runtime::zeromq_transport::open(std::move(o));
  if (!net) throw std::runtime_error{net.error().text};
  return *net;
}

std::byte byte_at(std::size_t i) {
  return static_cast<std::byte>((i >> 12) * 31 + i);
}

payload pattern(std::uint64_t bytes) {
  const auto owner = std::make_shared_for_overwrite<std::byte[]>(bytes);
  for (std::size_t i = 0; i < bytes; ++i) owner[i] = byte_at(i);
  return payload{std::shared_ptr<const void>{owner, owner.get()}, {owner.get(), bytes}};
}

/// A node that sends and receives so many tensors. Exits with 0 if all came whole and its memory
/// grew by no more than the limit.
int exchange(address me, address other, const std::string& directory, const payload& sent,
             std::uint64_t count, std::uint64_t max_grown_bytes) {
  ::malloc_trim(0);  // what the tests before this one have freed would hide the growth
  const memory_peak memory;
  const auto c = one_datacenter();
  const auto bytes = sent.bytes().size();
  std::atomic<std::uint64_t> came{0}, damaged{0};
  // Few bytes of each are compared: the test measures the transport.
  const auto check = [&](const frame& f) {
    const auto m = decode(f.header.bytes());
    const auto* t = m ? std::get_if<tensor>(&m->second) : nullptr;
    const auto body = f.body.bytes();
    bool whole = t != nullptr && t->iteration == came && body.size() == bytes;
    for (std::size_t i = 0; whole && i < body.size(); i += 4093) whole = body[i] == byte_at(i);
    damaged += whole ? 0 : 1;
    ++came;
  };
  const auto net = open_host(c, me, fmt::format("ipc://{}/{}", directory, me),
                             fmt::format("ipc://{}/{}", directory, gateway_1));
  net->listen([&](const frame& f) {
    check(f);
    net->handled(f);
  });
  if (!net->wait_until_greeted(long_s)) return 2;
  for (std::uint64_t n = 0; n < count; ++n) {
    tensor t;
    t.from = {1, me - node_a, 0};
    t.to_pipeline = other - node_a;
    t.what = tensor::kind::partial;
    t.iteration = n;
    t.bytes = bytes;
    const auto f = encode(me, other, t, sent);
    if (!runtime::wait_until([&] { return net->send(other, f, runtime::tensor_lane); }, long_s))
      return 3;
  }
  if (!runtime::wait_until([&] { return came == count; }, long_s) || damaged > 0) return 4;
  const auto grown = memory.grown_by();
  fmt::print("{} of {} MiB each way: memory grew by {} MiB at most\n", count, bytes >> 20,
             grown >> 20);
  std::fflush(stdout);
  // Frames in transit are lost when their sender exits.
  const auto done = [&](address a) { return fmt::format("{}/{}-done", directory, a); };
  std::ofstream{done(me)};
  if (!runtime::wait_until([&] { return std::filesystem::exists(done(other)); }, long_s)) return 6;
  return grown <= max_grown_bytes ? 0 : 5;
}

struct exchange_size {
  std::uint64_t bytes, count, max_grown_bytes;
};

/// Two node processes, and here the gateway and what stands for the controller.
void check_exchange(const exchange_size& x) {
  scratch directory;
  const auto c = std::make_shared<const cluster>(one_datacenter());
  const auto sent = pattern(x.bytes);
  std::vector<pid_t> children;
  for (const auto& [me, other] : {std::pair{node_a, node_b}, {node_b, node_a}}) {
    children.push_back(::fork());
    REQUIRE(children.back() >= 0);
    if (children.back() == 0)
      ::_exit(exchange(me, other, directory.path(), sent, x.count, x.max_grown_bytes));
  }
  std::atomic<std::uint64_t> reports{0}, tensor_reports{0};
  const auto controller = open_host(*c, controller_address, "ipc://" + (directory / "0"), "");
  controller->listen([&](const frame& f) {
    const auto m = decode(f.header.bytes());
    if (const auto* r = m ? std::get_if<gateway_report>(&m->second) : nullptr) {
      ++reports;
      tensor_reports += r->traffic ? 1 : 0;
    }
    controller->handled(f);
  });
  actors::host_threads config;
  caf::actor_system system{config};
  runtime::host h;
  h.self = gateway_1;
  h.incarnation = 1;
  h.clock = std::make_shared<runtime::real_clock>();
  h.net = open_host(*c, gateway_1, "ipc://" + (directory / "1"), controller->endpoint());
  const auto actors = actors::start_gateway(system, h, c, false);
  for (const auto child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  const auto before = reports.load();
  CHECK(runtime::wait_until([&] { return reports >= before + 2; }, long_s));
  CHECK(tensor_reports == 0);
  for (const auto& a : actors) caf::anon_send_exit(a, caf::exit_reason::kill);
}

constexpr std::uint64_t mib = 1 << 20;

}  // namespace

TEST_CASE("nodes of one datacenter exchange 256 MiB in bounded memory, without their gateway") {
  check_exchange({16 * mib, 16, 224 * mib});
}

TEST_CASE("nodes of one datacenter exchange 2 GiB in bounded memory, without their gateway",
          "[.long]") {
  check_exchange({64 * mib, 32, 512 * mib});
  check_exchange({1024 * mib, 2, 3584 * mib});
}
