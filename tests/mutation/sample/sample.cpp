// One of everything that the tool mutates, and some that it must leave alone. It is formatted, and
// compiles as it is.

#include "mutation/sample/sample.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#define LESS(a, b) (a < b)

namespace {

template <class T, bool Twice = true>
T times(const T& x) {
  return Twice ? x * 2 : x;
}

struct counter {
  int value = 0;
  counter& operator++() {
    value += 1;
    return *this;
  }
  bool operator==(const counter&) const = default;
};

constexpr int three = 1 + 2;
static_assert(three == 3 && true);

struct rest {
  explicit rest(std::vector<int> xs) : xs_(std::move(xs)) {}
  std::vector<int> all() && { return std::move(xs_); }

 private:
  std::vector<int> xs_;
};

}  // namespace

std::vector<double> sample(const std::vector<int>& xs, std::optional<int> extra) {
  std::vector<double> out;
  const auto note = [&](double x) { out.push_back(x); };
  // A comment with a < b && c is no code; neither is "a + b".
  note(xs[0] + xs[1]);
  note(xs[0] - xs[1]);
  note(xs[0] * 1.5 / 2.0);
  for (const int x : xs) {
    note(x < 4);
    note(x <= 4);
    note(x > 4);
    note(x >= 4);
    note(x == 4 || x == 5);
    note(x != 4 && extra && *extra != x);
    note(extra == x);
  }
  note(std::min(xs[0], xs[1]));
  note(std::max<double>(xs[0], 0.5));
  note(std::max({xs[0], xs[1], three}));
  bool found = false;
  if (!extra) found = true;
  note(found);
  int sum = 0;
  for (std::size_t i = 0; i + 1 < xs.size(); ++i) sum += xs[i];
  note(sum);
  ++sum;
  note(sum);
  sum *= 3;
  note(times(sum));
  counter c;
  ++c;
  note(c == counter{1});
  note(static_cast<double>(rest{xs}.all().size()));
  if constexpr (three > 2) note(LESS(sum, 3));
  // An operator that has no other for its operands makes a mutant that is not drawn.
  const std::string text = std::string{"a"} + "b";
  note(static_cast<double>(text.size()));
  note(std::any_of(xs.begin(), xs.end(), [](int x) { return x > 8 && x < 10; }) ||
       (xs[0] == 0 && xs[1] == 0));
  return out;
}
