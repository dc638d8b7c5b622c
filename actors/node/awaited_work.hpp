#pragma once

#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/wire/work.hpp"

namespace troupe::actors {

/// The work that a node waits for before it ends.
struct awaited_work {
  double within_s = 0;   // the longest grace; after that it waits for nothing more
  std::string sentence;  // "waits at most 5 s for job 3 (resnet)"; empty: nothing runs
};

/// In a node's state directory, once it waits: `within_s`, and a line with the sentence.
inline constexpr const char* waiting_file_name = "waits";

/// The time that a part has once it is to stop: to save, or, of a decoder, for the requests that
/// have begun.
double grace_of(const troupe::cluster& c, const work_order& w);

/// `work`: what runs.
awaited_work awaited(const troupe::cluster& c, const std::vector<const work_order*>& work);

}  // namespace troupe::actors
