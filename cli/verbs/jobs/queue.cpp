#include "cli/verbs/jobs/jobs_verb.hpp"

namespace troupe::cli {

std::unique_ptr<verb> make_queue() {
  return make_jobs_verb(false);
}

}  // namespace troupe::cli
