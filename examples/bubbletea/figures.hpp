#pragma once

#include <string>
#include <vector>

#include "bubbletea/filling.hpp"

// What the example measures, and how it is printed.

namespace bubbletea {

/// One rule on one training, saturated.
struct packed {
  std::string training, served, rule;
  std::size_t promised = 0;  // that are kept waiting
  filling result;
};

/// A trace by its arrivals.
struct open_loop {
  std::string served;
  double rate = 1;
  filling result;
};

/// A model in prefill pipelines of that depth, by the trace's arrivals.
struct deep {
  std::string served;
  std::uint32_t depth = 0, layers = 0;  // of a guest
  double guest_gb = 0;
  filling result;
};

/// A point of Figure 13.
struct overhead {
  std::uint32_t tokens = 0, gpus = 0, hops = 0;
  double gbit_s = 0, ms = 0;
};

struct comparison {
  std::string what, paper, here, why;
};

struct figures {
  std::string trace;  // what it is of
  std::vector<packed> saturated;
  std::vector<open_loop> by_arrival;
  std::vector<deep> depths;
  std::vector<overhead> figure13;
  double gpt_a_c = 0;
  double own_prefill_ms = 0;  // of 8,192 tokens of Llama 3 8B on an A100 of the catalogue
  std::vector<comparison> compared;
};

void print_text(const figures& f);
void print_json(const figures& f);

}  // namespace bubbletea
