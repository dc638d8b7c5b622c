#include "python/policies/call.hpp"

namespace troupe::planners::python {

void call::count(const decision& d) {
  if (d.what == decision::kind::give_up) return;
  if (!idle_) idle_.emplace(now().idle);
  if (d.what != decision::kind::start)
    for (const auto* jobs : {&now().running, &now().moving})
      if (const auto at = jobs->find(d.job); at != jobs->end())
        for (const auto& share : at->second.where)
          idle_->set_idle(share.node, idle_->idle(share.node) + share.gpus);
  take(*idle_, d.where);
}

}  // namespace troupe::planners::python
