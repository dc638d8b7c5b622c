#include "probe.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "allocations.hpp"
#include "messages/codec/codec.hpp"

namespace troupe::testing {
namespace {

using bytes = std::span<const std::byte>;

[[noreturn]] void give_up(const char* why, bytes input) {
  std::fprintf(stderr, "%s, given these %zu bytes:\n", why, input.size());
  for (const auto b : input) std::fprintf(stderr, "%02x", std::to_integer<unsigned>(b));
  std::fputc('\n', stderr);
  std::abort();
}

bool same(bytes a, bytes b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Calls a decoder on the input and counts what it asked for.
template <class F>
auto counted(bytes input, std::size_t& max, F&& decoder) {
  const auto before = allocated_bytes();
  auto result = decoder(input);
  const auto used = allocated_bytes() - before;
  if (used > max_bytes_for(input.size())) give_up("A decoder asked for too much memory", input);
  if (!result && result.error().text.empty()) give_up("A decoder refused without a reason", input);
  max = std::max(max, used);
  return result;
}

void check_message(bytes input, probed& seen) {
  const auto e = counted(input, seen.allocated_bytes, [](bytes b) { return peek(b); });
  const auto m = counted(input, seen.allocated_bytes, [](bytes b) { return decode(b); });
  if (!m) return;
  seen.message = true;
  if (!e || e->type != m->first.type || e->from != m->first.from || e->to != m->first.to)
    give_up("What was decoded was not what was peeked at", input);
  const auto again = encode(e->from, e->to, m->second);
  const auto back = decode(again.header.bytes());
  if (!back) give_up("A message that was accepted is refused when encoded again", input);
  if (!same(encode(e->from, e->to, back->second).header.bytes(), again.header.bytes()))
    give_up("A message changes when it is encoded again", input);
}

void check_entry(bytes input, probed& seen) {
  const auto entry = counted(input, seen.allocated_bytes, [](bytes b) { return decode_entry(b); });
  if (!entry) return;
  seen.entry = true;
  const auto again = encode(*entry);
  const auto back = decode_entry(again);
  if (!back) give_up("An entry that was accepted is refused when encoded again", input);
  if (encode(*back) != again) give_up("An entry changes when it is encoded again", input);
}

}  // namespace

probed probe(bytes input) {
  probed seen;
  try {
    check_message(input, seen);
    check_entry(input, seen);
  } catch (const std::exception&) {
    give_up("A decoder threw", input);
  }
  return seen;
}

}  // namespace troupe::testing
