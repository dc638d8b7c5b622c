#include "cli/verbs/cluster/drain_verb.hpp"

namespace troupe::cli {

std::unique_ptr<verb> make_undrain() {
  return make_drain_verb(false);
}

}  // namespace troupe::cli
