#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "python/policies/call.hpp"

namespace troupe::planners::python {

/// `s` of decide() and why_waiting(): questions about the snapshot count what was decided before.
struct snapshot_view {
  std::shared_ptr<call> of;

  const snapshot& operator*() const { return of->now(); }
};

/// A plan of a job and GPUs for it.
struct placement {
  view<plan> how;
  view<allocation> where;
};

/// The idle GPUs of a call.
struct idle_view {
  std::shared_ptr<call> of;
};

/// `random`: the world's generator.
struct random_view {
  std::shared_ptr<call> of;
};

/// Why no plan can ever run the job, as a sentence; empty: one may.
std::string why_never(const snapshot& s, const job_view& j);

void define_cluster(pybind11::module_& m);
void define_jobs(pybind11::module_& m);
void define_snapshot(pybind11::module_& m);

}  // namespace troupe::planners::python
