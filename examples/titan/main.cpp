// The TITAN paper's tables and figures (docs/papers/titan.md). Nothing on standard output depends
// on the clock.
#include "titan/figures.hpp"

int main() {
  const extent e{20, 10};
  runs all;
  lookup_table();
  table2();
  figure3();
  figure4();
  table3(all, e);
  figure5_and_table4(all, e);
  sensitivity(all, e);
  print_compared(58, 26, 30);
}
