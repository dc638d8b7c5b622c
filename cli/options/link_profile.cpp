#include "cli/options/link_profile.hpp"

#include <algorithm>
#include <vector>

#include "runtime/process/link_probe.hpp"

namespace troupe::cli {

namespace {

json points_of(const std::vector<link_rate>& all) {
  json out = json::array();
  for (const auto& p : all) out.push_back({p.bytes, p.gbps});
  return out;
}

/// "[[65536, 4.2], [262144, 6.685]]"
std::string rows_of(const std::vector<link_rate>& all) {
  std::string out;
  for (const auto& p : all)
    out += fmt::format("{}[{}, {:.4g}]", out.empty() ? "" : ", ", p.bytes, p.gbps);
  return "[" + out + "]";
}

}  // namespace

int measure_links(output& out, const std::string& address, std::uint32_t flows) {
  const auto m = runtime::measure_link(address, flows);
  if (!m) return out.failure(m.error());
  const double gbps = std::ranges::max(m->rates, {}, &link_rate::gbps).gbps;
  const double latency_us = m->round_trip_s * 1e6 / 2;
  out.document({{"address", address},
                {"flows", m->flows},
                {"rtt_ms", m->round_trip_s * 1e3},
                {"latency_us", latency_us},
                {"gbps", gbps},
                {"rates", points_of(m->rates)},
                {"flow_rates", points_of(m->flow_rates)}});
  out.line("# For the nodes of a cluster file, measured over TCP to {} with {} connection{}.",
           address, m->flows, m->flows == 1 ? "" : "s");
  out.line("inter:");
  out.line("  gbps: {:.4g}", gbps);
  out.line("  latency_us: {:.3g}", latency_us);
  out.line("  rates: {}", rows_of(m->rates));
  out.line("  flow_rates: {}", rows_of(m->flow_rates));
  out.line("# Between datacenters, under `wan:`: rtt_ms: {:.3g}, node_gbps: {:.4g}, and the same",
           m->round_trip_s * 1e3, gbps);
  out.line("# rates and flow_rates.");
  return exit_done;
}

int answer_links(output& out, const std::string& address) {
  auto listener = runtime::link_listener::open(address);
  if (!listener) return out.failure(listener.error());
  // On standard error, so that a script sees the port while --json has one document.
  out.note("listening at {}; run `troupe profile --links {}` on the other machine",
           listener->address(), listener->address());
  const auto peer = listener->serve([&](const std::string& sentence) { out.note("{}", sentence); });
  if (!peer) return out.failure(peer.error());
  out.document({{"address", listener->address()}, {"peer", *peer}});
  out.line("{} has measured the link, and has the figures.", *peer);
  return exit_done;
}

}  // namespace troupe::cli
