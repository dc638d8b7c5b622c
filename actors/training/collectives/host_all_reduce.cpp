#include "actors/training/collectives/host_all_reduce.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "gpu/device/simulated_tensor.hpp"
#include "messages/base/folds.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint64_t value_bytes = sum_chain::value_bytes;
static_assert(value_bytes == sizeof(float));

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

/// A sum that grows; of a simulation, that of digests.
class growing_sum {
 public:
  explicit growing_sum(const payload& first)
      : bytes_{copy_of(first)}, digest_{gpu::digest_in(first)} {}

  void add(const payload& more) {
    actors::add(bytes_, more);
    const auto other = gpu::digest_in(more);
    digest_ =
        digest_ && other ? std::optional{gpu::sum_of_digests(*digest_, *other)} : std::nullopt;
  }
  payload take() { return digest_ ? gpu::simulated_tensor(*digest_) : payload{std::move(bytes_)}; }

 private:
  std::vector<std::byte> bytes_;
  std::optional<std::uint64_t> digest_;
};

/// Chunks that follow each other. In a simulation each has the digest of the whole: those of
/// several sums make a digest that no sum has.
payload concatenation_of(const std::vector<payload>& chunks) {
  std::vector<std::byte> whole;
  std::optional<std::uint64_t> digest;
  whole.reserve(troupe::sum_of(chunks, [](const payload& c) { return c.bytes().size(); }));
  for (const auto& c : chunks) {
    whole.insert(whole.end(), c.bytes().begin(), c.bytes().end());
    const auto one = gpu::digest_in(c);
    if (one && digest && one != digest)
      digest = gpu::hash_of({*digest, *one});
    else if (one)
      digest = one;
  }
  return digest ? gpu::simulated_tensor(*digest) : payload{std::move(whole)};
}

}  // namespace

// The slice shares the whole's bytes and keeps them alive. Each part of a simulated tensor has the
// digest of the whole.
payload slice(const payload& whole, std::uint64_t first, std::uint64_t size) {
  if (whole.bytes().empty()) return whole;
  auto owner = std::make_shared<const payload>(whole);
  return payload{owner, owner->bytes().subspan(first, size)};
}

payload joined(const payload& a, const payload& b) {
  const auto first = gpu::digest_in(a), second = gpu::digest_in(b);
  if (first && second) return gpu::simulated_tensor(gpu::hash_of({*first, *second}));
  if (b.bytes().empty()) return a;
  auto both = copy_of(a);
  both.insert(both.end(), b.bytes().begin(), b.bytes().end());
  return payload{std::move(both)};
}

payload sum_of(const payload& a, const payload& b) {
  if (a.bytes().empty() && !gpu::digest_in(a)) return b;
  growing_sum sum{a};
  sum.add(b);
  return sum.take();
}

host_all_reduce::host_all_reduce(std::uint32_t members, std::uint32_t self,
                                 const std::vector<std::uint32_t>& datacenters,
                                 std::uint64_t max_chunk)
    : size_{members},
      rank_{self},
      datacenters_{datacenters},
      max_chunk_{max_chunk},
      chain_{members, self, datacenters},
      unreduced_(members),
      reduced_(members) {}

bool host_all_reduce::all_near(const by_member& all) const {
  const auto at = [&](std::uint32_t m) { return all.begin() + m; };
  return std::all_of(at(chain_.first_member()), at(chain_.end_member()),
                     [](const auto& p) { return p.has_value(); });
}

// Reduce-scatter: every other member of the run gets this one's part of its chunks. Sums that came
// early could not be checked before the size was known.
std::vector<host_all_reduce::outgoing> host_all_reduce::begin(payload gradients,
                                                              std::uint64_t bytes) {
  own_ = std::move(gradients);
  bytes_ = bytes;
  chain_.set_size(bytes, max_chunk_);
  started_ = true;
  std::vector<outgoing> result;
  for (auto m = chain_.first_member(); m < chain_.end_member(); ++m) {
    const auto c = chain_.part_of(m);
    auto part = slice(own_, c.first, c.size);
    if (m == rank_)
      unreduced_[m] = std::move(part);
    else
      result.push_back({m, tensor::kind::partial, std::move(part), c.size});
  }
  for (auto m = chain_.first_member(); m < chain_.end_member(); ++m)
    if (reduced_[m]) check("sum", m, *reduced_[m], chain_.part_of(m).size);
  auto more = advance();
  std::move(more.begin(), more.end(), std::back_inserter(result));
  return result;
}

// A partial is another member's part of this one's chunks; a sum is another's chunks, reduced.
std::vector<host_all_reduce::outgoing> host_all_reduce::receive(const tensor& what, payload body) {
  const auto from = what.from.pipeline;
  if (from >= size_ || from == rank_) return {};
  if (what.what == tensor::kind::running || what.what == tensor::kind::running_sum)
    return receive_running(what, std::move(body));
  if (!chain_.is_near(from)) return {};
  if (what.what == tensor::kind::partial) {
    if (unreduced_[from]) return {};  // a duplicate
    unreduced_[from] = std::move(body);
    return advance();
  }
  if (reduced_[from]) return {};
  reduced_[from] = std::move(body);
  if (started_) check("sum", from, *reduced_[from], chain_.part_of(from).size);
  return {};
}

// Before this member has begun it does not know which chunks are its own: advance() takes those
// alone.
std::vector<host_all_reduce::outgoing> host_all_reduce::receive_running(const tensor& t,
                                                                        payload body) {
  const bool whole = t.what == tensor::kind::running_sum;
  const auto c = t.microbatch;
  if (c >= max_chunks || chain_.is_near(t.from.pipeline)) return {};
  if (whole ? chain_.is_last() : chain_.is_first()) return {};
  auto& kept = whole ? total_ : running_;
  const auto [at, fresh] = kept.try_emplace(c, std::move(body));
  if (!fresh) return {};  // a duplicate
  if (!started_) return {};
  const auto [first, end] = chain_.chunks_of(rank_);
  if (c < first || c >= end) return {};
  check("running sum", t.from.pipeline, at->second, chain_.chunk(c).size);
  std::vector<outgoing> result;
  if (!error_.empty()) return result;
  if (!whole) return advance();
  if (!chain_.is_first())
    result.push_back(
        {chain_.previous_owner(c), tensor::kind::running_sum, at->second, chain_.chunk(c).size, c});
  hand_on(result);
  return result;
}

std::vector<host_all_reduce::missing_tensor> host_all_reduce::missing() const {
  std::vector<missing_tensor> result;
  if (!started_) return result;
  for (auto m = chain_.first_member(); m < chain_.end_member(); ++m) {
    if (m == rank_) continue;
    if (!unreduced_[m]) result.push_back({tensor::kind::partial, m});
    if (!reduced_[m]) result.push_back({tensor::kind::sum, m});
  }
  const auto [first, end] = chain_.chunks_of(rank_);
  for (auto c = first; c < end; ++c) {
    if (!chain_.is_first() && !running_.contains(c))
      result.push_back({tensor::kind::running, chain_.previous_owner(c), c});
    // Nobody has the whole sum before this member's part is in it.
    if (!chain_.is_last() && added_.contains(c) && !total_.contains(c))
      result.push_back({tensor::kind::running_sum, chain_.next_owner(c), c});
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

/// Once all parts of this member's chunks are here, and the sum of the runs before, they are added.
/// Adding each part on its arrival would save memory but make the bits depend on the network.
std::vector<host_all_reduce::outgoing> host_all_reduce::advance() {
  std::vector<outgoing> result;
  if (!started_ || !all_near(unreduced_)) return result;
  const auto [first, end] = chain_.chunks_of(rank_);
  for (auto m = chain_.first_member(); m < chain_.end_member(); ++m)
    check("part", m, *unreduced_[m], chain_.part_of(rank_).size);
  for (auto c = first; c < end; ++c)
    if (const auto at = running_.find(c); at != running_.end())
      check("running sum", chain_.previous_owner(c), at->second, chain_.chunk(c).size);
  if (!error_.empty()) return result;
  for (auto c = first; c < end; ++c)
    if (!added_.contains(c) && (chain_.is_first() || running_.contains(c))) add_up(c, result);
  hand_on(result);
  return result;
}

/// Adds the run's parts of a chunk in the order of the pipelines, and sends the sum on, or back.
void host_all_reduce::add_up(std::uint32_t c, std::vector<outgoing>& out) {
  const auto own = chain_.part_of(rank_);
  const auto range = chain_.chunk(c);
  const auto part = [&](std::uint32_t m) {
    return slice(*unreduced_[m], range.first - own.first, range.size);
  };
  auto m = chain_.first_member();
  growing_sum sum{chain_.is_first() ? part(m++) : running_.at(c)};
  for (; m < chain_.end_member(); ++m) sum.add(part(m));
  added_.insert(c);
  auto all = sum.take();
  if (!chain_.is_last()) {
    out.push_back({chain_.next_owner(c), tensor::kind::running, std::move(all), range.size, c});
    return;
  }
  if (!chain_.is_first())
    out.push_back({chain_.previous_owner(c), tensor::kind::running_sum, all, range.size, c});
  total_[c] = std::move(all);
}

/// The begin of the all-gather: this member's chunks are summed over all pipelines, and go to the
/// others of its run.
void host_all_reduce::hand_on(std::vector<outgoing>& out) {
  const auto [first, end] = chain_.chunks_of(rank_);
  if (reduced_[rank_]) return;
  for (auto c = first; c < end; ++c)
    if (!total_.contains(c) || !added_.contains(c)) return;
  if (end - first == 1) {
    reduced_[rank_] = total_.at(first);
  } else {
    std::vector<payload> mine;
    for (auto c = first; c < end; ++c) mine.push_back(total_.at(c));
    reduced_[rank_] = concatenation_of(mine);
  }
  for (auto m = chain_.first_member(); m < chain_.end_member(); ++m)
    if (m != rank_)
      out.push_back({m, tensor::kind::sum, *reduced_[rank_], chain_.part_of(rank_).size});
}

// Chunks follow each other in the order of the run's members, as the chain has cut them.
payload host_all_reduce::result() {
  std::vector<payload> chunks;
  for (const auto& c : reduced_)
    if (c) chunks.push_back(*c);
  auto whole = concatenation_of(chunks);
  *this = host_all_reduce{size_, rank_, std::vector{datacenters_}, max_chunk_};
  return whole;
}

}  // namespace troupe::actors
