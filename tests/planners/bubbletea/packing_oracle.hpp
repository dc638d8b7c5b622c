#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "planners/bubbletea/prefill_packing.hpp"

// The times that promises must have, found operation by operation and from the beginning each time,
// without the cursors, keys and kept plans of the code under test.

namespace packing_oracle {

using namespace troupe;
using namespace troupe::planners;

/// The earliest begin from `from` on of `each_s` inside one window.
inline double first_fit(const idle_windows& windows, double from, double each_s) {
  for (const auto& w : windows) {
    const double begin = std::max(w.begin, from);
    if (begin + each_s <= w.end + 1e-9) return begin;
  }
  return never;
}

struct known_request {
  prefill_prompt request;
  double admitted_s = 0;
};

struct outcome {
  double begin_s = never, end_s = never;  // of a request
};

/// When each of a group's requests begins and ends, if they run in this order.
inline std::vector<outcome> carry_out(const prefill_group& group,
                                      const std::vector<idle_windows>& windows,
                                      const std::vector<known_request>& order,
                                      const packing_options& o) {
  std::vector<outcome> all;
  std::vector<double> free(group.guests.size(), 0.0);
  for (const auto& x : order) {
    const auto w = work_of(group, x.request.tokens, o);
    outcome out;
    for (std::size_t tile = 0; tile < w.hop_s.size(); ++tile) {
      double ready = x.admitted_s;
      for (std::size_t g = 0; g < group.guests.size(); ++g) {
        for (std::uint32_t i = 0; i < w.guests[g][tile].count; ++i) {
          const double each = w.guests[g][tile].each_s;
          const double begin =
              first_fit(windows[group.guests[g].device], std::max(free[g], ready), each);
          if (begin == never) {
            all.resize(order.size());
            return all;
          }
          out.begin_s = std::min(out.begin_s, begin);
          free[g] = begin + each;
        }
        ready = free[g] + w.hop_s[tile];
      }
    }
    out.end_s = free.back();
    all.push_back(out);
  }
  return all;
}

}  // namespace packing_oracle
