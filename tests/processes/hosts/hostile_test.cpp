#include <sys/stat.h>

#include <fstream>

#include "harness/resident_bytes.hpp"
#include "harness/sanitized.hpp"
#include "processes/fixture.hpp"
#include "runtime/process/process.hpp"
#include "runtime/tcp.hpp"
#include "runtime/zeromq/keys.hpp"

// Unauthenticated peers and hostile clients of real processes with keys, and their cost.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t max_bytes = std::size_t{harness::sanitized ? 2048 : 256} << 20;

bool holds_within(double seconds, const std::function<bool()>& so) {
  const runtime::stopwatch waited;
  while (!so()) {
    if (waited.s() > seconds) return false;
    runtime::pause(0.05);
  }
  return true;
}

std::string words_in(const fs::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// The first of several consecutive free ports.
int free_ports(int how_many) {
  for (int first = 21000 + getpid() % 5000;; first += how_many) {
    REQUIRE(first < 60000);
    bool all = true;
    for (int p = first; p < first + how_many && all; ++p) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      const auto a = loopback(static_cast<std::uint16_t>(p));
      all = ::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
      ::close(fd);
    }
    if (all) return first;
  }
}

/// The demo cluster, or its controller alone, with keys.
struct keyed_place {
  explicit keyed_place(const char* name)
      : state{fs::temp_directory_path() / fmt::format("troupe-{}-{}", name, getpid())},
        keys{(state / "keys").string()},
        cluster_file{shipped("clusters/demo.yaml").string()} {
    fs::remove_all(state);
    fs::create_directories(state);
    const auto c = formats::load_cluster(cluster_file);
    REQUIRE(c);
    REQUIRE(
        runtime::make_keys(keys, runtime::key_names(*c), {{"mallory", runtime::key_role::client}}));
  }
  ~keyed_place() { fs::remove_all(state); }

  std::unique_ptr<actors::real_host> client(const std::string& endpoint, const char* key) const {
    actors::real_host_options o;
    o.upstream = endpoint;
    o.keys = keys;
    o.client_key = key;
    auto c = actors::real_host::client(o, long_s);
    INFO((c ? std::string{} : c.error().text));
    REQUIRE(c);
    return std::move(*c);
  }

  fs::path state;
  std::string keys, cluster_file;
};

std::vector<std::byte> zmtp_frame_of(std::uint64_t size) {
  std::vector<std::byte> bytes(64 + 9);
  bytes[0] = std::byte{0xff}, bytes[9] = std::byte{0x7f}, bytes[10] = std::byte{3};
  bytes[11] = std::byte{0};
  const char* mechanism = "CURVE";
  for (std::size_t i = 0; mechanism[i]; ++i) bytes[12 + i] = static_cast<std::byte>(mechanism[i]);
  bytes[64] = std::byte{0x06};  // a command with a long length
  for (std::size_t i = 0; i < 8; ++i) bytes[65 + i] = static_cast<std::byte>(size >> (8 * (7 - i)));
  return bytes;
}

/// Sends the beginning of a frame that claims `size` bytes, until the other side has had enough.
std::size_t half_a_frame(std::uint16_t port, std::uint64_t size, std::size_t max) {
  const int fd = connect_to(port);
  REQUIRE(fd >= 0);
  const auto head = zmtp_frame_of(size);
  std::size_t sent = 0;
  if (::send(fd, head.data(), head.size(), MSG_NOSIGNAL) > 0) {
    const std::vector<char> some(1 << 20);
    for (ssize_t n = 1; n > 0 && sent < max;
         sent += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
      n = ::send(fd, some.data(), some.size(), MSG_NOSIGNAL);
  }
  ::close(fd);
  return sent;
}

}  // namespace

TEST_CASE(
    "a controller's memory stays bounded under oversized frames and clients that do not read") {
  keyed_place place{"hostile"};
  const auto endpoint = fmt::format("tcp://127.0.0.1:{}", free_ports(1));
  runtime::process_options o;
  o.command = {TROUPE_PROGRAM, "controller",
               "--cluster",    place.cluster_file,
               "--state",      (place.state / "controller").string(),
               "--keys",       place.keys,
               "--listen",     endpoint};
  o.output = (place.state / "controller.log").string();
  auto controller = runtime::process::start(o);
  REQUIRE(controller);
  const auto pid = std::to_string((*controller)->id());
  auto honest = place.client(endpoint, "operator");
  std::size_t max = resident_bytes(pid);
  const auto small = [&] {
    max = std::max(max, resident_bytes(pid));
    return max < max_bytes;
  };

  // Before any key is proven: frames that claim 400 MB are cut when their length is read.
  for (int i = 0; i < 4; ++i) {
    CHECK(half_a_frame(port_of(endpoint), 400'000'000, 400'000'000) < 64U << 20);
    CHECK(small());
  }

  // A client that asks, claims credit without end, and reads nothing.
  for (int i = 0; i < 100; ++i) {
    submit_job s;
    s.spec.name = fmt::format("job-{}", i);
    const auto m = formats::load_model(shipped("models/bert-large.yaml"));
    REQUIRE(m);
    s.spec.model = *m;
    s.spec.global_batch = 4;
    s.spec.program.command = {"true"};
    REQUIRE(honest->ask(s, long_s).reply);
  }
  const auto ring = runtime::load_keys(place.keys, "mallory");
  REQUIRE(ring);
  {
    raw_dealer greedy{endpoint, 7, &*ring};
    const auto me = greedy.greet();
    for (std::uint64_t n = 1; n <= 40'000; ++n) {
      if (!greedy.send(encode(me, 0, query_jobs{n, 0}))) break;
      if (n % 16 == 0) greedy.send(encode(me, 0, credit{0xffffffff}));
      if (n % 500 == 0 && !small()) break;
    }
    CHECK(holds_within(long_s, [&] {  // it has looked at all that was asked
      small();
      return honest->ask(query_jobs{0, 1}, long_s).reply.has_value();
    }));
  }
  INFO("at most " << (max >> 20) << " MiB");
  CHECK(small());
  CHECK_FALSE((*controller)->poll());
}

TEST_CASE("interrupted handshakes end no node: it reconnects when its gateway is back") {
  keyed_place place{"handshake"};
  cli::local_cluster_options o;
  o.cluster_file = place.cluster_file;
  o.state = (place.state / "cluster").string();
  o.program = TROUPE_PROGRAM;
  o.keys = place.keys;
  o.port = free_ports(8);
  auto cluster = cli::local_cluster::start(o);
  INFO((cluster ? std::string{} : cluster.error().text));
  REQUIRE(cluster);
  auto client = place.client((*cluster)->controller_address(), "operator");
  const auto all_present = [&] {
    auto a = client->ask(query_jobs{}, long_s).reply;
    if (!a) return false;
    const auto& nodes = std::get<query_reply>(a->first).nodes;
    return std::all_of(nodes.begin(), nodes.end(), [](const auto& n) { return n.present; });
  };
  REQUIRE(holds_within(long_s, all_present));

  const auto log = place.state / "cluster" / "output" / "north-gateway.log";
  const auto said = words_in(log);
  const auto at = said.find("endpoint=\"tcp://127.0.0.1:") != std::string::npos
                      ? said.find("endpoint=\"tcp://127.0.0.1:") + 26
                      : said.find("endpoint=tcp://127.0.0.1:") + 25;
  INFO(said);
  const auto port = static_cast<std::uint16_t>(std::stoi(said.substr(at)));
  (*cluster)->kill("north/gateway");
  {
    slammer closes_all{port};
    REQUIRE(holds_within(long_s, [&] { return closes_all.slammed() >= 30; }));
  }
  CHECK((*cluster)->ended().empty());
  REQUIRE((*cluster)->restart("north/gateway"));
  CHECK(holds_within(long_s, all_present));
  CHECK((*cluster)->ended().empty());
}
