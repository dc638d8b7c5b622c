#include "actors/training/collectives/host_all_reduce.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace troupe::actors {

namespace {

constexpr std::uint64_t value_bytes = sizeof(float);

std::vector<std::byte> copy_of(const payload& p) {
  const auto bytes = p.bytes();
  return {bytes.begin(), bytes.end()};
}

void add(std::vector<std::byte>& to, const payload& from) {
  const auto bytes = from.bytes();
  const auto n = to.size() / value_bytes;
  // Frames need not be aligned: memcpy, which the compiler turns into vector loads.
  for (std::size_t i = 0; i < n; ++i) {
    float a, b;
    std::memcpy(&a, to.data() + i * value_bytes, value_bytes);
    std::memcpy(&b, bytes.data() + i * value_bytes, value_bytes);
    a += b;
    std::memcpy(to.data() + i * value_bytes, &a, value_bytes);
  }
}

}  // namespace

// The slice shares the whole's bytes and keeps them alive.
payload slice(const payload& whole, std::uint64_t first, std::uint64_t size) {
  if (whole.bytes().empty()) return {};
  auto owner = std::make_shared<const payload>(whole);
  return payload{owner, owner->bytes().subspan(first, size)};
}

payload joined(const payload& a, const payload& b) {
  if (b.bytes().empty()) return a;
  auto both = copy_of(a);
  both.insert(both.end(), b.bytes().begin(), b.bytes().end());
  return payload{std::move(both)};
}

payload sum_of(const payload& a, const payload& b) {
  if (a.bytes().empty()) return b;
  auto sum = copy_of(a);
  add(sum, b);
  return payload{std::move(sum)};
}

host_all_reduce::host_all_reduce(std::uint32_t members, std::uint32_t self)
    : size_{members}, rank_{self}, unreduced_(members), reduced_(members) {}

/// The chunk that a member reduces. Chunks are whole values, differ by at most one value, and cover
/// the gradients without a gap, also when there are more members than values.
host_all_reduce::range host_all_reduce::chunk(std::uint32_t member) const {
  const auto values = bytes_ / value_bytes;
  const auto first = values * member / size_, end = values * (member + 1) / size_;
  return {first * value_bytes, (end - first) * value_bytes};
}

// Reduce-scatter: every other member gets this one's part of its chunk. Sums that came early could
// not be checked before the size was known.
std::vector<host_all_reduce::outgoing> host_all_reduce::begin(payload gradients,
                                                              std::uint64_t bytes) {
  own_ = std::move(gradients);
  bytes_ = bytes;
  started_ = true;
  std::vector<outgoing> result;
  for (std::uint32_t m = 0; m < size_; ++m) {
    const auto c = chunk(m);
    auto part = slice(own_, c.first, c.size);
    if (m == rank_)
      unreduced_[m] = std::move(part);
    else
      result.push_back({m, tensor::kind::partial, std::move(part), c.size});
  }
  for (std::uint32_t m = 0; m < size_; ++m)
    if (reduced_[m]) check("sum", m, *reduced_[m], chunk(m).size);
  auto more = reduce_if_complete();
  std::move(more.begin(), more.end(), std::back_inserter(result));
  return result;
}

// A partial is another member's part of this one's chunk; a sum is another's chunk, reduced.
std::vector<host_all_reduce::outgoing> host_all_reduce::receive(const tensor& what, payload body) {
  const auto from = what.from.pipeline;
  if (from >= size_ || from == rank_) return {};
  if (what.what == tensor::kind::partial) {
    if (unreduced_[from]) return {};  // a duplicate
    unreduced_[from] = std::move(body);
    return reduce_if_complete();
  }
  if (reduced_[from]) return {};
  reduced_[from] = std::move(body);
  if (started_) check("sum", from, *reduced_[from], chunk(from).size);
  return {};
}

std::vector<std::pair<tensor::kind, std::uint32_t>> host_all_reduce::missing() const {
  std::vector<std::pair<tensor::kind, std::uint32_t>> result;
  for (std::uint32_t m = 0; m < size_ && started_; ++m) {
    if (m == rank_) continue;
    if (!unreduced_[m]) result.emplace_back(tensor::kind::partial, m);
    if (!reduced_[m]) result.emplace_back(tensor::kind::sum, m);
  }
  return result;
}

/// In a simulation the bodies are empty.
void host_all_reduce::check(const char* what, std::uint32_t from, const payload& body,
                            std::uint64_t bytes) {
  const auto wanted = own_.bytes().empty() ? 0 : bytes;
  if (body.bytes().size() == wanted || !error_.empty()) return;
  error_ = fmt::format("pipeline {} sent a {} of gradients with {} bytes, expected {}", from, what,
                       body.bytes().size(), wanted);
}

/// The end of the reduce-scatter and the begin of the all-gather: once all members' parts of this
/// chunk are here, they are added in the order of the pipelines and the sum goes to all members.
/// Adding each part on its arrival would save memory but make the bits depend on the network.
std::vector<host_all_reduce::outgoing> host_all_reduce::reduce_if_complete() {
  if (summed_ || !started_ || !all_here(unreduced_)) return {};
  summed_ = true;
  for (std::uint32_t m = 0; m < size_; ++m) check("part", m, *unreduced_[m], chunk(rank_).size);
  if (!error_.empty()) return {};
  auto sum = copy_of(*unreduced_[0]);
  for (std::uint32_t m = 1; m < size_; ++m) add(sum, *unreduced_[m]);
  reduced_[rank_] = payload{std::move(sum)};
  std::vector<outgoing> result;
  for (std::uint32_t m = 0; m < size_; ++m)
    if (m != rank_) result.push_back({m, tensor::kind::sum, *reduced_[rank_], chunk(rank_).size});
  return result;
}

// Chunks follow each other in the order of the members, as chunk() has cut them.
payload host_all_reduce::result() {
  std::vector<std::byte> whole;
  whole.reserve(own_.bytes().size());
  for (const auto& c : reduced_) whole.insert(whole.end(), c->bytes().begin(), c->bytes().end());
  *this = host_all_reduce{size_, rank_};
  return payload{std::move(whole)};
}

}  // namespace troupe::actors
