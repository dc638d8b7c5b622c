#pragma once

#include "messages/wire/journal.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

// A node may say things within limits, whoever has its key: its sentences and lists go into the
// journal and to clients, and policies compute with its numbers. Applied where a report arrives; a
// longer text is cut with a mark, and a number outside of its bounds
// (messages/admission/measured.hpp) is no measurement.

namespace troupe::actors {

node_report bounded(node_report r);
training_report bounded(training_report r);

/// The same for a journal entry, which an earlier version may have written.
program_end bounded(program_end e);
/// Without rates that are none.
elastic_record bounded(elastic_record r);

}  // namespace troupe::actors
