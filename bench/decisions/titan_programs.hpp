#pragma once

namespace troupe::bench {

/// bench_decisions titan [INSTANCES] [--json] [--check]: what TITAN's program takes. `arguments`:
/// those after "titan". The exit status.
int time_titan_programs(int count, char** arguments);

}  // namespace troupe::bench
