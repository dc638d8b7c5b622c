#include <pybind11/stl.h>

#include "messages/domain/work_kind.hpp"
#include "planners/plans/has.hpp"
#include "planners/policy/progress.hpp"
#include "python/policies/sequences.hpp"
#include "python/policies/snapshot_view.hpp"

namespace troupe::planners::python {

namespace {

const std::vector<plan> no_plans;

views<plan> plans_of(const view<job_view>& j) {
  return {j.of, j->plans ? j->plans.get() : &no_plans};
}

/// A property of the job's file.
template <class M>
auto spec(M job_spec::*member) {
  return [member](const view<job_view>& j) -> const M& { return j->spec.get()->*member; };
}

/// One of a group of them.
template <class G, class M>
auto spec(G job_spec::*group, M G::*member) {
  return [=](const view<job_view>& j) -> const M& { return j->spec.get()->*group.*member; };
}

/// A field of one of its groups.
template <class G, class M>
auto past(G job_view::*group, M G::*member) {
  return [=](const view<job_view>& j) -> const M& { return (*j).*group.*member; };
}

/// A property that depends on the time.
template <class F>
auto progress(F of) {
  return [of](const view<job_view>& j) { return of(j.of->now(), *j); };
}

/// The index of a GPU type is one of the cluster's `gpu_types`.
void define_stage(py::module_& m) {
  py::class_<view<plan_stage>>(m, "Stage")
      .def_property_readonly("first", get(&plan_stage::first))
      .def_property_readonly("count", get(&plan_stage::count))
      .def_property_readonly("tensor_parallel", get(&plan_stage::tensor_parallel))
      .def_property_readonly("gpu", get(&plan_stage::gpu))
      .def_property_readonly("bytes_per_gpu", get(&plan_stage::bytes_per_gpu))
      .def_property_readonly("datacenter", get(&plan_stage::datacenter))
      .def_property_readonly("held", get(&plan_stage::held));
  py::class_<views<plan_stage>> stages(m, "Stages");
  as_sequence(stages);
}

void define_group(py::module_& m) {
  py::class_<view<pipeline_group>>(m, "Group")
      .def_property_readonly("pipelines", get(&pipeline_group::pipelines))
      .def_property_readonly("microbatches", get(&pipeline_group::microbatches))
      .def_property_readonly("stages", [](const view<pipeline_group>& g) {
        return views<plan_stage>{g.of, &g->stages};
      });
  py::class_<views<pipeline_group>> groups(m, "Groups");
  as_sequence(groups);
}

void define_plan(py::module_& m) {
  define_stage(m);
  define_group(m);
  py::class_<view<plan>>(m, "Plan")
      .def_property_readonly("gpus", [](const view<plan>& p) { return p->gpus(); })
      .def_property_readonly("data_parallel", get(&plan::data_parallel))
      .def_property_readonly("tensor_parallel", get(&plan::tensor_parallel))
      .def_property_readonly("pipeline_parallel", get(&plan::pipeline_parallel))
      .def_property_readonly("bytes_per_gpu", get(&plan::bytes_per_gpu))
      .def_property_readonly("samples_per_s", get(&plan::samples_per_s))
      .def_property_readonly("cost_per_hour", get(&plan::cost_per_hour))
      .def_property_readonly("traffic_per_iteration", get(&plan::traffic_per_iteration))
      .def_property_readonly("gpu_types", get(&plan::gpu_types))
      .def_property_readonly("tensor_in_node", get(&plan::tensor_in_node))
      .def_property_readonly("microbatches", get(&plan::microbatches))
      .def_property_readonly("rows", get(&plan::rows))
      .def_property_readonly("stages",
                             [](const view<plan>& p) {
                               return views<plan_stage>{p.of, &p->stages};
                             })
      .def_property_readonly("groups",
                             [](const view<plan>& p) -> std::optional<views<pipeline_group>> {
                               if (!p->groups) return {};
                               return views<pipeline_group>{p.of, &*p->groups};
                             })
      .def("__repr__",
           [](const view<plan>& p) { return "<Plan on " + std::to_string(p->gpus()) + " GPUs>"; });
  py::class_<views<plan>> plans(m, "Plans");
  as_sequence(plans);
}

void define_allocation(py::module_& m) {
  py::class_<view<allocation>> where(m, "Allocation");
  as_sequence(
      where, [](const view<allocation>& a) -> const allocation& { return *a; },
      [](const view<allocation>&, const node_share& share) {
        return py::make_tuple(share.node, share.gpus);
      });
  where.def_property_readonly("gpus", [](const view<allocation>& a) { return total_gpus(*a); });
}

void define_file_properties(py::class_<view<job_view>>& type) {
  type.def_property_readonly("name", spec(&job_spec::name))
      .def_property_readonly("priority", spec(&job_spec::priority))
      .def_property_readonly("global_batch", spec(&job_spec::global_batch))
      .def_property_readonly("iterations", spec(&job_spec::iterations))
      .def_property_readonly("gpus", spec(&job_spec::request, &gpu_request::gpus))
      .def_property_readonly("gpu_type", spec(&job_spec::request, &gpu_request::type))
      .def_property_readonly("max_gpus", spec(&job_spec::limits, &job_limits::max_gpus))
      .def_property_readonly("required_gpu_type",
                             spec(&job_spec::limits, &job_limits::required_gpu_type))
      .def_property_readonly("slo_s", spec(&job_spec::limits, &job_limits::slo_s))
      .def_property_readonly("deadline_s", spec(&job_spec::limits, &job_limits::deadline_s))
      .def_property_readonly("budget", spec(&job_spec::limits, &job_limits::budget))
      .def_property_readonly("dataset_card", spec(&job_spec::merging, &merge_wish::dataset_card))
      .def_property_readonly(
          "model",
          [](const view<job_view>& j) -> const std::string& { return j->spec->model.name; })
      .def_property_readonly(
          "is_program", [](const view<job_view>& j) { return facts_of(*j->spec).has_processes; })
      .def_property_readonly("resumable",
                             [](const view<job_view>& j) { return facts_of(*j->spec).resumable; });
}

void define_state_properties(py::class_<view<job_view>>& type) {
  type.def_property_readonly("id", get(&job_view::id))
      .def_property_readonly("training", get(&job_view::training))
      .def_property_readonly("submitted_s", get(&job_view::submitted_s))
      .def_property_readonly("plans", plans_of)
      .def_property_readonly("never", progress(why_never))
      .def_property_readonly("owner", get(&job_view::owner))
      .def_property_readonly("iterations_done",
                             past(&job_view::progress, &job_progress::iterations_done))
      .def_property_readonly("iterations_left", progress(iterations_left))
      .def_property_readonly("samples_left", progress(samples_left))
      .def_property_readonly("attempts", past(&job_view::progress, &job_progress::attempts))
      .def_property_readonly("out_of_memory",
                             past(&job_view::history, &memory_history::out_of_memory))
      .def_property_readonly("bytes_floor", past(&job_view::history, &memory_history::bytes_floor))
      .def_property_readonly("started_s", get(&job_view::started_s))
      .def_property_readonly("iteration_s", get(&job_view::iteration_s))
      .def_property_readonly("plan",
                             [](const view<job_view>& j) -> std::optional<view<plan>> {
                               if (j->where.empty()) return {};
                               return inside(j, j->how);
                             })
      .def_property_readonly("where", [](const view<job_view>& j) { return inside(j, j->where); });
}

/// Two views of a job are equal.
void define_identity(py::class_<view<job_view>>& type) {
  type.def("__eq__",
           [](const view<job_view>& a, const py::object& b) {
             return py::isinstance<view<job_view>>(b) &&
                    a->id == b.cast<const view<job_view>&>()->id;
           })
      .def("__hash__", [](const view<job_view>& j) { return j->id; })
      .def("__repr__", [](const view<job_view>& j) {
        return "<Job " + std::to_string(j->id) + " " + j->spec->name + ">";
      });
}

}  // namespace

// As has() and its callers answer. The first plan usually decides it.
std::string why_never(const snapshot& s, const job_view& j) {
  if (!has_plans(j)) return why_none(j).text;
  for (const auto& p : *j.plans)
    if (p.bytes_per_gpu > j.history.bytes_floor) return {};
  const auto found = has(s.cluster, s.idle, *j.plans, j.history.bytes_floor);
  const bool never = !found && found.error().code == reason::kind::infeasible;
  return never ? found.error().text : std::string{};
}

void define_jobs(py::module_& m) {
  define_plan(m);
  define_allocation(m);
  py::class_<view<job_view>> job(m, "Job");
  define_file_properties(job);
  define_state_properties(job);
  define_identity(job);
  py::class_<views<const job_view*>> jobs(m, "Jobs");
  as_sequence(jobs);
}

}  // namespace troupe::planners::python
