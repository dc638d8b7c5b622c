#pragma once

#include <string>
#include <vector>

#include "cli/program.hpp"
#include "harness/source_dir.hpp"
#include "processes/fixture.hpp"

namespace troupe::test {

inline const std::string laptop = troupe::test::source_dir() + "/configs/clusters/laptop.yaml";

/// `troupe up --detach` of a small cluster, and its end.
struct detached {
  explicit detached(std::vector<std::string> more = {}, std::string at = {},
                    const std::string& cluster = laptop)
      : state{at.empty() ? where / "state" : std::move(at)} {
    std::vector<std::string> words{"up", cluster, "--state", state, "--detach", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    said = troupe(words);
  }
  ~detached() { troupe({"down", "--now", "--state", state}); }

  result ask(std::vector<std::string> words) const {
    words.insert(words.end(), {"--state", state});
    return troupe(words);
  }
  pid_t process() const { return said.document().at("process").get<pid_t>(); }

  scratch where;
  std::string state;
  result said;
};

}  // namespace troupe::test
