#pragma once

#include <string>

#include "messages/base/reason.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

// How an attempt at a training ends by an error: whether the job has failed, or may run again.

namespace troupe::actors {

/// The end of an attempt in which a stage has failed. `progress`: this attempt has got further than
/// earlier ones.
part_report::state end_after(const reason& why, bool progress);

/// The end by an error of the trainer's own files.
part_report::state end_after_file_error(const reason& why);

/// Why the training cannot go on after this iteration; empty: its loss and norm are finite.
std::string not_finite(const iteration_record& r);

}  // namespace troupe::actors
