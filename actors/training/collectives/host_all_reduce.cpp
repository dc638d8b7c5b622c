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
  // Frames need not be aligned: through a buffer, which the compiler turns into vector loads.
  for (std::size_t i = 0; i < n; ++i) {
    float a, b;
    std::memcpy(&a, to.data() + i * value_bytes, value_bytes);
    std::memcpy(&b, bytes.data() + i * value_bytes, value_bytes);
    a += b;
    std::memcpy(to.data() + i * value_bytes, &a, value_bytes);
  }
}

}  // namespace

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
    : members_{members},
      self_{self},
      parts_(members),
      has_part_(members),
      has_sum_(members),
      chunks_(members) {}

host_all_reduce::range host_all_reduce::chunk(std::uint32_t member) const {
  const auto values = bytes_ / value_bytes;
  const auto first = values * member / members_, end = values * (member + 1) / members_;
  return {first * value_bytes, (end - first) * value_bytes};
}

std::vector<host_all_reduce::parcel> host_all_reduce::begin(payload gradients,
                                                            std::uint64_t bytes) {
  mine_ = std::move(gradients);
  bytes_ = bytes;
  begun_ = true;
  std::vector<parcel> result;
  for (std::uint32_t m = 0; m < members_; ++m) {
    const auto c = chunk(m);
    auto part = slice(mine_, c.first, c.size);
    if (m == self_) {
      parts_[m] = std::move(part);
      ++parts_here_;
    } else {
      result.push_back({m, tensor::kind::part, std::move(part), c.size});
    }
  }
  for (std::uint32_t m = 0; m < members_; ++m)
    if (has_sum_[m]) check("sum", m, chunks_[m], chunk(m).size);
  auto more = sum_if_all_here();
  std::move(more.begin(), more.end(), std::back_inserter(result));
  return result;
}

std::vector<host_all_reduce::parcel> host_all_reduce::take(const tensor& what, payload body) {
  const auto from = what.from.pipeline;
  if (from >= members_ || from == self_) return {};
  if (what.what == tensor::kind::part) {
    if (has_part_[from]) return {};  // it came twice
    has_part_[from] = true;
    parts_[from] = std::move(body);
    ++parts_here_;
    return sum_if_all_here();
  }
  if (has_sum_[from]) return {};
  has_sum_[from] = true;
  chunks_[from] = std::move(body);
  ++sums_;
  if (begun_) check("sum", from, chunks_[from], chunk(from).size);
  return {};
}

std::vector<std::pair<tensor::kind, std::uint32_t>> host_all_reduce::missing() const {
  std::vector<std::pair<tensor::kind, std::uint32_t>> result;
  for (std::uint32_t m = 0; m < members_ && begun_; ++m) {
    if (m == self_) continue;
    if (!has_part_[m]) result.emplace_back(tensor::kind::part, m);
    if (!has_sum_[m]) result.emplace_back(tensor::kind::sum, m);
  }
  return result;
}

/// In a simulation nothing has a body.
void host_all_reduce::check(const char* what, std::uint32_t from, const payload& body,
                            std::uint64_t bytes) {
  const auto wanted = mine_.bytes().empty() ? 0 : bytes;
  if (body.bytes().size() == wanted || !mistake_.empty()) return;
  mistake_ = fmt::format("pipeline {} sent a {} of gradients with {} bytes, expected {}", from,
                         what, body.bytes().size(), wanted);
}

std::vector<host_all_reduce::parcel> host_all_reduce::sum_if_all_here() {
  if (summed_ || !begun_ || parts_here_ < members_) return {};
  summed_ = true;
  for (std::uint32_t m = 0; m < members_; ++m) check("part", m, parts_[m], chunk(self_).size);
  if (!mistake_.empty()) return {};
  auto sum = copy_of(parts_[0]);
  for (std::uint32_t m = 1; m < members_; ++m) add(sum, parts_[m]);
  chunks_[self_] = payload{std::move(sum)};
  ++sums_;
  std::vector<parcel> result;
  for (std::uint32_t m = 0; m < members_; ++m)
    if (m != self_) result.push_back({m, tensor::kind::sum, chunks_[self_], chunk(self_).size});
  return result;
}

payload host_all_reduce::result() {
  std::vector<std::byte> whole;
  whole.reserve(mine_.bytes().size());
  for (const auto& c : chunks_) whole.insert(whole.end(), c.bytes().begin(), c.bytes().end());
  *this = host_all_reduce{members_, self_};
  return payload{std::move(whole)};
}

}  // namespace troupe::actors
