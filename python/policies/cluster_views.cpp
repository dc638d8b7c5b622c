#include <pybind11/stl.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planners/cluster/gpu_pools.hpp"
#include "python/policies/sequences.hpp"
#include "python/policies/snapshot_view.hpp"

namespace troupe::planners::python {

namespace {

template <class T>
std::size_t index_in(const std::vector<T>& all, const view<T>& one) {
  return static_cast<std::size_t>(&*one - all.data());
}

/// A property whose value is a curve: a list of tuples, or None.
template <class T, class Point>
auto curve(std::optional<std::vector<Point>> T::*member) {
  return [member](const view<T>& v) -> py::object {
    const auto& points = (*v).*member;
    if (!points) return py::none();
    py::list out;
    for (const auto& p : *points)
      out.append(std::apply([](const auto&... x) { return py::make_tuple(x...); }, p.fields()));
    return out;
  };
}

void define_links(py::module_& m) {
  py::class_<view<link>>(m, "Link")
      .def_property_readonly("name", get(&link::name))
      .def_property_readonly("gbps", get(&link::gbps))
      .def_property_readonly("latency_us", get(&link::latency_us))
      .def_property_readonly("rates", curve(&link::rates))
      .def_property_readonly("flow_rates", curve(&link::flow_rates))
      .def_property_readonly("group_rates", curve(&link::group_rates));
  const auto name_of = [](std::uint32_t wan_link::*end) {
    return [end](const view<wan_link>& w) -> const std::string& {
      return w.of->now().cluster.datacenters[(*w).*end].name;
    };
  };
  py::class_<view<wan_link>>(m, "WanLink")
      .def_property_readonly("a", name_of(&wan_link::a))
      .def_property_readonly("b", name_of(&wan_link::b))
      .def_property_readonly("rtt_ms", get(&wan_link::rtt_ms))
      .def_property_readonly("node_gbps", get(&wan_link::node_gbps))
      .def_property_readonly("connection_gbps", get(&wan_link::connection_gbps))
      .def_property_readonly("jitter_ms", get(&wan_link::jitter_ms))
      .def_property_readonly("emulate", get(&wan_link::emulate))
      .def_property_readonly("rates", curve(&wan_link::rates))
      .def_property_readonly("flow_rates", curve(&wan_link::flow_rates))
      .def_property_readonly("price_per_gb", get(&wan_link::price_per_gb))
      .def_property_readonly("price_per_gb_back", get(&wan_link::price_per_gb_back));
}

void define_gpu_type(py::module_& m) {
  py::class_<view<gpu_type>>(m, "GpuType")
      .def_property_readonly(
          "index", [](const view<gpu_type>& g) { return index_in(g.of->now().cluster.gpus, g); })
      .def_property_readonly("name", get(&gpu_type::name))
      .def_property_readonly("memory_gb", get(&gpu_type::memory_gb))
      .def_property_readonly("memory_gbytes_s", get(&gpu_type::memory_gbytes_s))
      .def_property_readonly("fp16_tflops", get(&gpu_type::fp16_tflops))
      .def_property_readonly("fp32_tflops", get(&gpu_type::fp32_tflops))
      .def_property_readonly("tf32_tflops", get(&gpu_type::tf32_tflops))
      .def_property_readonly("fp8_tflops", get(&gpu_type::fp8_tflops))
      .def_property_readonly("efficiency", get(&gpu_type::efficiency))
      .def_property_readonly("fp32_efficiency", get(&gpu_type::fp32_efficiency))
      .def_property_readonly("kernel_us", get(&gpu_type::kernel_us))
      .def_property_readonly("compute_capability", get(&gpu_type::compute_capability))
      .def_property_readonly("source", get(&gpu_type::source))
      .def_property_readonly("price_per_hour", get(&gpu_type::price_per_hour))
      .def_property_readonly("quota", get(&gpu_type::quota))
      .def("__repr__", [](const view<gpu_type>& g) { return "<GpuType " + g->name + ">"; });
}

void define_node(py::module_& m) {
  py::class_<view<node>>(m, "Node")
      .def_property_readonly(
          "index", [](const view<node>& n) { return index_in(n.of->now().cluster.nodes, n); })
      .def_property_readonly("name", get(&node::name))
      .def_property_readonly("gpus", get(&node::gpus))
      .def_property_readonly(
          "gpu", [](const view<node>& n) { return inside(n, n.of->now().cluster.gpus[n->gpu]); })
      .def_property_readonly("datacenter",
                             [](const view<node>& n) -> const std::string& {
                               return n.of->now().cluster.datacenters[n->datacenter].name;
                             })
      .def_property_readonly("price_per_hour",
                             [](const view<node>& n) {
                               const auto& c = n.of->now().cluster;
                               return price_per_hour(c,
                                                     static_cast<node_index>(index_in(c.nodes, n)));
                             })
      .def_property_readonly("intra", [](const view<node>& n) { return inside(n, n->intra); })
      .def_property_readonly("inter", [](const view<node>& n) { return inside(n, n->inter); })
      .def_property_readonly("nvlink_domain", get(&node::nvlink_domain))
      .def_property_readonly("emulate_speed", get(&node::emulate_speed))
      .def_property_readonly("removed", get(&node::removed))
      .def("__repr__", [](const view<node>& n) { return "<Node " + n->name + ">"; });
}

}  // namespace

void define_cluster(py::module_& m) {
  define_links(m);
  define_gpu_type(m);
  define_node(m);
  py::class_<views<gpu_type>> types(m, "GpuTypes");
  as_sequence(types);
  py::class_<views<node>> nodes(m, "Nodes");
  as_sequence(nodes);
  py::class_<views<wan_link>> wan(m, "WanLinks");
  as_sequence(wan);
  py::class_<view<cluster>>(m, "Cluster")
      .def_property_readonly("name", get(&cluster::name))
      .def_property_readonly("nodes",
                             [](const view<cluster>& c) {
                               return views<node>{c.of, &c->nodes};
                             })
      .def_property_readonly("gpu_types",
                             [](const view<cluster>& c) {
                               return views<gpu_type>{c.of, &c->gpus};
                             })
      .def_property_readonly("wan",
                             [](const view<cluster>& c) {
                               return views<wan_link>{c.of, &c->wan};
                             })
      .def_property_readonly("restart_s",
                             [](const view<cluster>& c) { return c->settings.restart_s; });
  py::class_<gpu_pool>(m, "Pool")
      .def_readonly("gpu", &gpu_pool::gpu)
      .def_readonly("datacenter", &gpu_pool::datacenter)
      .def_readonly("node_gpus", &gpu_pool::node_gpus)
      .def_readonly("capacity", &gpu_pool::capacity)
      .def_readonly("nodes", &gpu_pool::nodes);
}

}  // namespace troupe::planners::python
