#include "python/policies/snapshot_view.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>

#include "messages/domain/work_kind.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/has.hpp"
#include "planners/plans/marp.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "python/policies/sequences.hpp"

namespace troupe::planners::python {

namespace {

using jobs = views<const job_view*>;
using job = view<job_view>;

/// Job lists other than the waiting ones are seldom asked for, so that they are made then.
auto listed(const job_views& (*list)(const snapshot&)) {
  return [list](const snapshot_view& s) {
    py::list out;
    for (const auto* j : all_in_order(list(*s))) out.append(py::cast(job{s.of, j}));
    return out;
  };
}

placement kept(const std::shared_ptr<call>& of, const plan& how, allocation where) {
  return {{of, &how}, {of, of->keep(std::move(where))}};
}

std::optional<placement> place(const snapshot_view& s, const job& j) {
  if (!has_plans(*j)) return {};
  const auto& c = (*s).cluster;
  std::optional<idle_index> allowed;
  auto found =
      has(c, allowed_idle(c, s.of->idle(), *j->spec, allowed), *j->plans, j->history.bytes_floor);
  if (!found) return {};
  return kept(s.of, (*j->plans)[found->plan], std::move(found->where));
}

std::optional<placement> has_of(const snapshot_view& s, const views<plan>& plans,
                                double bytes_floor) {
  auto found = has((*s).cluster, s.of->idle(), *plans, bytes_floor);
  if (!found) return {};
  return kept(s.of, (*plans)[found->plan], std::move(found->where));
}

views<plan> marp_of(const snapshot_view& s, const job& j) {
  auto plans = marp((*s).cluster, *j->spec);
  return {s.of, s.of->keep(plans ? std::move(*plans) : std::vector<plan>{})};
}

/// Samples/s of a plan on the slowest of its types, packed tightly. The plan's own figure is of the
/// time when its list was made, or an estimate alone.
double rate_of_plan(const snapshot_view& s, const job& j, const view<plan>& how) {
  if (!facts_of(*j->spec).elastic) return how->samples_per_s;
  const auto& c = (*s).cluster;
  std::optional<double> slowest;
  for (const auto g : how->gpu_types) {
    const auto nodes = nodes_of_type(c, g);
    if (nodes.empty()) continue;
    const auto e = estimate_start(c, *j, *how, pack(c, nodes, how->gpus()));
    if (!(e.iteration_s > 0)) continue;
    const double rate = j->spec->global_batch / e.iteration_s;
    slowest = std::min(slowest.value_or(rate), rate);
  }
  return slowest.value_or(how->samples_per_s);
}

std::optional<job> find(const snapshot_view& s, job_id id) {
  if (const auto* j = view_of(*s, id)) return job{s.of, j};
  return {};
}

void define_questions(py::class_<snapshot_view>& type) {
  type.def("place", place, py::arg("job"))
      .def("has", has_of, py::arg("plans"), py::arg("bytes_floor") = 0.0)
      .def("marp", marp_of, py::arg("job"))
      .def("job", find, py::arg("id"))
      .def(
          "fits",
          [](const snapshot_view& s, const view<plan>& how, const view<allocation>& where) {
            return fits((*s).cluster, s.of->idle(), *how, *where).has_value();
          },
          py::arg("plan"), py::arg("where"))
      .def(
          "within_bounds",
          [](const snapshot_view& s, const job& j, const view<allocation>& where) {
            return within_bounds((*s).cluster, *j->spec, *where).has_value();
          },
          py::arg("job"), py::arg("where"))
      .def(
          "estimate",
          [](const snapshot_view& s, const job& j, const view<plan>& how,
             const view<allocation>& where) {
            return estimate_start((*s).cluster, *j, *how, *where);
          },
          py::arg("job"), py::arg("plan"), py::arg("where"))
      .def("rate_of", rate_of_plan, py::arg("job"), py::arg("plan"))
      .def(
          "restart_of",
          [](const snapshot_view& s, const job& j) { return restart_of((*s).cluster, *j); },
          py::arg("job"))
      .def_property_readonly(
          "pools", [](const snapshot_view& s) { return pools_of((*s).cluster, s.of->idle()); });
}

node_index node_of(const idle_view& idle, py::ssize_t n) {
  const auto nodes = static_cast<py::ssize_t>(idle.of->now().cluster.nodes.size());
  if (n < 0 || n >= nodes) throw py::index_error("node out of range");
  return static_cast<node_index>(n);
}

/// By node; and of a type.
void define_idle(py::module_& m) {
  py::class_<idle_view>(m, "Idle")
      .def("__len__", [](const idle_view& idle) { return idle.of->now().cluster.nodes.size(); })
      .def("__getitem__", [](const idle_view& idle,
                             py::ssize_t n) { return idle.of->idle().idle(node_of(idle, n)); })
      .def_property_readonly(
          "total",
          [](const idle_view& idle) { return idle.of->now(), idle.of->idle().total_idle(); })
      .def("of_type", [](const idle_view& idle, const view<gpu_type>& type) {
        return idle.of->idle().idle_of(
            static_cast<gpu_index>(&*type - idle.of->now().cluster.gpus.data()));
      });
}

void define_answers(py::module_& m) {
  py::class_<placement>(m, "Placement")
      .def_readonly("plan", &placement::how)
      .def_readonly("where", &placement::where);
  py::class_<start_estimate>(m, "Estimate")
      .def_readonly("iteration_s", &start_estimate::iteration_s)
      .def_readonly("bytes_per_gpu", &start_estimate::bytes_per_gpu)
      .def_readonly("out_of_memory", &start_estimate::out_of_memory)
      .def_readonly("start_s", &start_estimate::start_s);
  py::class_<random_view>(m, "Random")
      .def("next", [](const random_view& r) { return r.of->random().next(); })
      .def("uniform", [](const random_view& r) { return r.of->random().uniform(); })
      .def("below",
           [](const random_view& r, std::uint64_t n) {
             if (n == 0) throw py::value_error("random.below() needs a number above 0");
             return r.of->random().below(n);
           })
      .def("chance", [](const random_view& r, double p) { return r.of->random().chance(p); });
}

}  // namespace

void define_snapshot(py::module_& m) {
  define_answers(m);
  define_idle(m);
  py::class_<snapshot_view> type(m, "Snapshot");
  define_questions(type);
  type.def_property_readonly("now_s", [](const snapshot_view& s) { return (*s).now_s; })
      .def_property_readonly("cluster",
                             [](const snapshot_view& s) {
                               return view<cluster>{s.of, &(*s).cluster};
                             })
      .def_property_readonly("idle", [](const snapshot_view& s) { return *s, idle_view{s.of}; })
      .def_property_readonly("waiting",
                             [](const snapshot_view& s) {
                               return *s, jobs{s.of, &s.of->waiting()};
                             })
      .def_property_readonly(
          "running", listed([](const snapshot& s) -> const job_views& { return s.running; }))
      .def_property_readonly(
          "moving", listed([](const snapshot& s) -> const job_views& { return s.moving; }));
}

}  // namespace troupe::planners::python
