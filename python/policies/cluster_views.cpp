#include <pybind11/stl.h>

#include "planners/cluster/gpu_pools.hpp"
#include "python/policies/sequences.hpp"
#include "python/policies/snapshot_view.hpp"

namespace troupe::planners::python {

namespace {

template <class T>
std::size_t index_in(const std::vector<T>& all, const view<T>& one) {
  return static_cast<std::size_t>(&*one - all.data());
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
      .def("__repr__", [](const view<node>& n) { return "<Node " + n->name + ">"; });
}

}  // namespace

void define_cluster(py::module_& m) {
  define_gpu_type(m);
  define_node(m);
  py::class_<views<gpu_type>> types(m, "GpuTypes");
  as_sequence(types);
  py::class_<views<node>> nodes(m, "Nodes");
  as_sequence(nodes);
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
