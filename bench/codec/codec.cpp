// The codec's cost on the hot path, and whether a cursor of our own is worth having: msgpack-c's
// parser over the same bytes, with a visitor that does nothing, is the lower bound of the cost of
// reading with msgpack-c.

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <fmt/core.h>
#include <msgpack/null_visitor.hpp>
#include <msgpack/unpack.hpp>

#include "messages/codec/codec.hpp"
#include "messages/codec/unpack.hpp"

using namespace troupe;

namespace {

// Nanoseconds a call: the best of many short runs, which other work on the machine disturbs least.
template <class F>
double nanoseconds(F&& call) {
  using clock = std::chrono::steady_clock;
  constexpr int calls = 2000, runs = 200;
  double best = 1e18;
  for (int run = 0; run < runs; ++run) {
    const auto start = clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::nano> taken = clock::now() - start;
    best = std::min(best, taken.count() / calls);
  }
  return best;
}

// The header and the message with the cursor alone: what the visitor is compared with.
template <class T>
bool unpack_all(std::span<const std::byte> header, T& into) {
  shape::unpacker in{header};
  std::uint64_t number = 0;
  bool good = in.array(5);
  for (int i = 0; i < 4; ++i) good = good && in.unpack(number);
  return good && in.unpack(into) && in.at_end();
}

template <class T>
void measure(const char* name, const T& m) {
  const message any{m};
  const auto f = encode(3, 0, any);
  const auto header = f.header.bytes();
  const auto* text = reinterpret_cast<const char*>(header.data());
  std::size_t sum = 0;
  T into;
  const double out = nanoseconds([&] { sum += encode(3, 0, any).size(); });
  const double in = nanoseconds([&] { sum += decode(header)->second.index() + 1; });
  const double look = nanoseconds([&] { sum += peek(header)->type; });
  const double cursor = nanoseconds([&] { sum += unpack_all(header, into); });
  const double visitor = nanoseconds([&] {
    msgpack::null_visitor nothing;
    sum += msgpack::parse(text, header.size(), nothing);
  });
  if (sum == 0 || into != m) std::abort();
  fmt::print("{:<12} {:>5} {:>10.0f} {:>10.0f} {:>8.0f} {:>10.0f} {:>10.0f} {:>9.2f}\n", name,
             header.size(), out, in, look, cursor, visitor, cursor / visitor);
}

}  // namespace

int main() {
  fmt::print("{:<12} {:>5} {:>10} {:>10} {:>8} {:>10} {:>10} {:>9}\n", "message", "bytes",
             "encode ns", "decode ns", "peek ns", "cursor ns", "visitor ns", "cur./vis.");
  part_report part;
  part.lease = 42, part.iterations = 9000, part.peak_bytes = 36.7e9;
  node_report report;
  report.incarnation = 1700000000, report.sequence = 123456, report.parts = {part};
  measure("node_report", report);
  work_order order;
  order.lease = 42, order.job = 40, order.devices = {0, 1, 2, 3};
  order.command = {"python3", "train.py"}, order.iterations = 9000, order.iteration_s = 0.25;
  node_orders orders;
  orders.work = {order};
  measure("node_orders", orders);
  gateway_report gathered{1, 2, {}};
  for (node_index n = 0; n < 100; ++n) gathered.heartbeats.push_back({n, 3, 70'000, 69'000});
  measure("gateway_report", gathered);
}
