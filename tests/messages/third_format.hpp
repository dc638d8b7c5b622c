#pragma once

#include <string>
#include <utility>
#include <vector>

#include "messages/wire/journal.hpp"

// The contents of recorded/journal_3.txt, line by line: entries of a journal of version 3, of every
// kind of work and with all keys of a job. Commit 84136893 wrote them; a later format cannot write
// them again.

namespace troupe::testing {

/// A job of each kind of work, with the keys that only its kind has.
std::vector<job_spec> jobs_of_third_format();

/// Each with a name.
std::vector<std::pair<std::string, journal_entry>> entries_of_third_format();

}  // namespace troupe::testing
