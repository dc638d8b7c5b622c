#include "cli/verbs/cluster/drain_verb.hpp"

namespace troupe::cli {

std::unique_ptr<verb> make_drain() {
  return make_drain_verb(true);
}

}  // namespace troupe::cli
