#pragma once

#include <string>
#include <vector>

#include "bubbletea/filling.hpp"

// The results of the example, and their output.

namespace bubbletea {

/// A training whose bubbles were filled in one way.
struct filled {
  std::string training, served, rule;
  std::size_t promised = 0;             // prompts that are kept waiting; 0: by arrival
  double rate = 1;                      // times the trace's
  std::uint32_t depth = 1, layers = 0;  // of prefill pipelines; layers of a guest
  double guest_gb = 0;
  filling result;
};

/// A point of Figure 13.
struct overhead {
  std::uint32_t tokens = 0, gpus = 0, hops = 0;
  double gbit_s = 0, ms = 0;
};

struct figures {
  std::string trace;  // its name, length and rate
  std::vector<filled> saturated, by_arrival, depths;
  std::vector<overhead> figure13;
};

void print_text(const figures& f);
void print_json(const figures& f);

}  // namespace bubbletea
