#pragma once

#include <string>

#include "messages/base/reason.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

// How an attempt at a training ends by an error: whether the job has failed, or may run again.

namespace troupe::actors {

/// The end of an attempt in which a stage has failed. `progress`: this attempt has got further than
/// earlier ones. One whose checkpoint folder a newer lease has taken fails: if that lease is the
/// job's own, this one is over for the controller, and otherwise another attempt would not help.
part_report::state end_after(const reason& why, bool progress);

/// Why the training cannot go on after this iteration; empty: its loss and norm are finite.
std::string not_finite(const iteration_record& r);

}  // namespace troupe::actors
