// bench_wan [connections|training]: how gateways' connections scale compared to plain TCP over the
// same emulated link, and ATLAS compared to Varuna over the emulated WAN. Prints ratios.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "harness/gateway_pair.hpp"
#include "wan/plain_tcp.hpp"
#include "wan/schedules.hpp"

using namespace troupe;
using namespace troupe::bench;
using harness::emulated_link;
using harness::emulated_link_options;
using harness::gateway_pair;

namespace {

// ATLAS's window law: 1.465 MB / one-way delay a connection, 5 Gbit/s a pair of nodes.
constexpr double delay_ms = 40, law_gbps = 1.465e6 * 8e-6 / delay_ms, pair_gbps = 5;
constexpr double measure_s = 4, warm_up_s = 1.5;

tensor numbered(std::uint32_t number, std::size_t bytes, std::uint32_t connections) {
  tensor t;
  t.from = {1, 0, 0};
  t.to_stage = 1;
  t.microbatch = number;
  t.bytes = bytes;
  t.path = {0, 1, connections};
  return t;
}

/// The payload rate of two gateways' tensors in the steady state.
double gateways_gbps(harness::gateway_pair_options o, std::uint32_t connections,
                     std::size_t window_bytes) {
  o.lanes = connections;
  gateway_pair gateways{std::move(o)};
  const std::size_t bytes = std::max<std::size_t>(window_bytes * connections / 4, 1 << 16);
  const payload body{std::vector<std::byte>(bytes)};
  const runtime::stopwatch watch;
  std::uint32_t sent = 0;
  constexpr std::uint32_t ahead = 12;  // tensors: three windows
  std::vector<double> at_s;
  while (watch.s() < warm_up_s + measure_s) {
    for (const auto& a : gateways.take()) at_s.push_back(a.at_s);
    while (sent < at_s.size() + ahead && gateways.send(numbered(sent, bytes, connections), body))
      ++sent;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  const auto first = std::find_if(at_s.begin(), at_s.end(),
                                  [&](double s) { return s > at_s.front() + warm_up_s; });
  if (first == at_s.end()) return -1;
  return static_cast<double>(at_s.end() - first - 1) * static_cast<double>(bytes) * 8e-9 /
         (at_s.back() - *first);
}

void print_connections() {
  emulated_link_options o;
  o.delay_ms = delay_ms;
  o.window_scale = 2;
  const double scale = law_gbps / o.window_gbps();
  o.gbps = pair_gbps / scale;
  const auto link = emulated_link::make(o);
  if (!link) {
    fmt::print("Connections are not compared: {}.\n", link.error().text);
    return;
  }
  fmt::print(
      "A cable of {:.0f} Mbit/s and {:.0f} ms each way between two of the kernel's networks; "
      "windows "
      "of {} bytes,\nso {:.1f} Mbit/s a connection. That is ATLAS's WAN ({:.0f} Mbit/s and {:.0f} "
      "Gbit/s) at 1:{:.1f}.\n\n"
      "| connections | plain TCP Mbit/s | of one | gateways Mbit/s | of one | gateways/TCP |\n"
      "|---:|---:|---:|---:|---:|---:|\n",
      o.gbps * 1e3, o.delay_ms, o.window_bytes(), o.window_gbps() * 1e3, law_gbps * 1e3, pair_gbps,
      scale);
  harness::gateway_pair_options g;
  g.wan.rtt_ms = 2 * delay_ms;
  for (std::uint32_t side = 0; side < 2; ++side)
    g.listen[side] = "tcp://" + emulated_link::address(side) + ":*";
  g.inside = [&](std::uint32_t side, const auto& what) { (*link)->inside(side, what); };
  double tcp_one = 0, gateways_one = 0;
  for (const std::uint32_t n : {1u, 4u, 8u, 16u, 32u}) {
    const double tcp = plain_tcp_gbps(**link, n, measure_s);
    const double gateways = gateways_gbps(g, n, o.window_bytes());
    if (n == 1) tcp_one = tcp, gateways_one = gateways;
    fmt::print("| {} | {:.1f} | {:.2f} | {:.1f} | {:.2f} | {:.2f} |\n", n, tcp * 1e3, tcp / tcp_one,
               gateways * 1e3, gateways / gateways_one, gateways / tcp);
    std::fflush(stdout);
  }
  const auto dropped = (*link)->sent(0).dropped + (*link)->sent(1).dropped;
  fmt::print("\n{} packets passed the cable, {} were dropped.\n",
             (*link)->sent(0).packets + (*link)->sent(1).packets, dropped);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  if (which != "training") print_connections();
  if (which.empty()) fmt::print("\n");
  if (which != "connections") print_schedules();
  return 0;
}
