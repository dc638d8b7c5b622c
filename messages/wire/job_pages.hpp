#pragma once

#include <iterator>

#include "messages/base/reason.hpp"
#include "messages/wire/client.hpp"

namespace troupe {

/// The answer to a question for all jobs, whose list may come in pages. `ask`: query_jobs to
/// expected<query_reply>. Every job is in it once; those behind the first page are of a later
/// moment.
template <class Ask>
expected<query_reply> all_jobs(const Ask& ask) {
  expected<query_reply> all = ask(query_jobs{});
  while (all && all->next) {
    query_jobs rest;
    rest.from = all->next;
    auto page = ask(rest);
    if (!page) return page;
    auto& jobs = page->jobs;
    all->jobs.insert(all->jobs.end(), std::make_move_iterator(jobs.begin()),
                     std::make_move_iterator(jobs.end()));
    // A page that does not go on would be asked for without end.
    all->next = page->next > rest.from ? page->next : std::nullopt;
  }
  return all;
}

}  // namespace troupe
