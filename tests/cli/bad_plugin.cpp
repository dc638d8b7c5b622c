// A plug-in that is wrong in the way that TROUPE_TEST_PLUGIN names.
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "messages/base/invariant.hpp"
#include "planners/policy/policy_plugin.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

bool is(std::string_view wrong) {
  const char* named = std::getenv("TROUPE_TEST_PLUGIN");
  return named != nullptr && named == wrong;
}

struct wrong_policy : policy {
  wrong_policy() {
    if (is("throws when made")) throw std::runtime_error("no licence");
    if (is("throws a number when made")) throw 42;
  }
  std::string_view name() const override {
    return is("bad name") ? "../up" : is("taken name") ? "fcfs" : "wrong";
  }
  policy_traits traits() const override { return {.round_s = is("bad round") ? -5.0 : 0.0}; }
  std::vector<parameter> parameters() override { return {{"limit", limit_, 0, 5}}; }
  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    if (limit_ == 3) throw std::runtime_error("the limit is three");
    if (is("bad node") && !s.waiting.empty()) {
      const auto& [id, job] = *s.waiting.begin();
      return {{decision::kind::start, id, job.plans->front(), {{1000, 1}}, {}}};
    }
    TROUPE_INVARIANT(!is("breaks an invariant") || s.waiting.size() < 2,
                     "no two jobs wait for a plug-in that is wrong");
    while (is("never returns")) ::pause();
    if (is("throws")) throw std::runtime_error("cannot think");
    return {};
  }
  reason why_waiting(const snapshot&, job_id) const override { return {}; }

  int limit_ = 0;
};

policy* make() {
  return is("makes nothing") ? nullptr : new wrong_policy;
}

}  // namespace

extern "C" const policy_plugin* troupe_policy_plugin() {
  static policy_plugin p{policy_plugin_format, plugin_abi, make};
  if (is("other headers")) p.abi = "0.0.9-0123456789ab";
  if (is("other format")) p.format = 2;
  return &p;
}
