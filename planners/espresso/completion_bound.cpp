#include "planners/espresso/completion_bound.hpp"

#include <algorithm>

#include "messages/time.hpp"

namespace troupe::planners {
namespace {

/// The open stages, as one of their types or another.
class open_stages {
 public:
  open_stages(const division& d, std::size_t decided, std::uint32_t missing)
      : d_{d}, missing_{missing} {
    for (auto t = decided; t < d.types.size() && missing > 0; ++t)
      if (d.types[t].stages > 0) types_.push_back(t);
  }

  const std::vector<std::size_t>& types() const { return types_; }

  /// So many of each type that the sum of `value` is the least.
  template <class Value, class Take>
  void fill(Value&& value, Take&& take) {
    std::ranges::sort(types_, {}, [&](std::size_t t) { return std::pair{value(t), t}; });
    auto left = missing_;
    for (const auto t : types_) {
      const auto n = std::min(left, d_.types[t].stages);
      if (n > 0) take(t, n);
      left -= n;
    }
  }

 private:
  const division& d_;
  std::uint32_t missing_;
  std::vector<std::size_t> types_;
};

double rate_of(const iteration_bound& bound, const stage_counts& counts, double last) {
  for (std::size_t t = 0; t < counts.size(); ++t) last += counts[t] * bound.rate(t);
  return last;
}

}  // namespace

completion_bound min_completion(const division& d, const iteration_bound& bound,
                                const stage_counts& counts, std::size_t decided,
                                std::uint32_t missing) {
  open_stages open{d, decided, missing};
  double price = 0, rate = 0, last = 0, through_s = never;
  const auto see = [&](std::size_t t) {
    last = std::max(last, bound.last_rate(t));
    through_s = std::min(through_s, bound.through_s(t));
  };
  for (std::size_t t = 0; t < counts.size(); ++t) {
    if (counts[t] == 0) continue;
    price += counts[t] * d.types[t].price_per_hour;
    rate += counts[t] * bound.rate(t);
    see(t);
  }
  for (const auto t : open.types()) see(t);
  rate += last;

  auto fastest = counts;
  open.fill([&](std::size_t t) { return -bound.rate(t); },
            [&](std::size_t t, std::uint32_t n) { fastest[t] += n; });
  completion_bound out;
  out.seconds = bound.ordered() ? bound.of(fastest, last)
                                : bound.work() * through_s + bound.sends_s() +
                                      bound.work() / rate_of(bound, fastest, last);
  double min_price = price;
  open.fill([&](std::size_t t) { return d.types[t].price_per_hour; },
            [&](std::size_t t, std::uint32_t n) { min_price += n * d.types[t].price_per_hour; });
  out.seconds_times_price = out.seconds * min_price;
  if (missing == 0) return out;

  double ratio = never;
  for (int round = 0; round < 50; ++round) {
    double p = price, r = rate;
    const double q = ratio == never ? 0 : ratio;
    open.fill([&](std::size_t t) { return d.types[t].price_per_hour - q * bound.rate(t); },
              [&](std::size_t t, std::uint32_t n) {
                p += n * d.types[t].price_per_hour;
                r += n * bound.rate(t);
              });
    if (p / r >= ratio * (1 - 1e-12)) {
      const double beyond_s = bound.work() * through_s + bound.sends_s();
      out.seconds_times_price = std::max(out.seconds_times_price,
                                         (1 - 1e-9) * bound.work() * ratio + min_price * beyond_s);
      break;
    }
    ratio = p / r;
  }
  return out;
}

}  // namespace troupe::planners
