#include "cli/verbs/jobs/jobs_verb.hpp"

namespace troupe::cli {

std::unique_ptr<verb> make_status() {
  return make_jobs_verb(true);
}

}  // namespace troupe::cli
