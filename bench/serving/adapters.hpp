#pragma once

namespace troupe::bench {

/// Four adapters on one model of 2,048 hidden values, beside the model alone and beside four merged
/// models, by tokens a second of processor time. False: a limit is missed.
bool adapters_beside_merged(int rounds);

}  // namespace troupe::bench
