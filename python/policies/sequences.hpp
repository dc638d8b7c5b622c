#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <vector>

#include "python/policies/call.hpp"

namespace troupe::planners::python {

namespace py = pybind11;

/// A list of the snapshot, whose elements become views when they are asked for.
template <class T>
struct views {
  std::shared_ptr<call> of;
  const std::vector<T>* all = nullptr;

  const std::vector<T>& operator*() const { return of->now(), *all; }
};

/// Job lists are of pointers, in queue order.
template <class T>
view<T> element(const std::shared_ptr<call>& of, const T& value) {
  return {of, &value};
}
inline view<job_view> element(const std::shared_ptr<call>& of, const job_view* value) {
  return {of, value};
}

/// len(), indices and slices of a class whose lists `list_of` returns; iteration follows.
template <class Owner, class List, class Element>
void as_sequence(py::class_<Owner>& type, List list_of, Element at) {
  type.def("__len__", [list_of](const Owner& o) { return list_of(o).size(); });
  type.def("__getitem__", [list_of, at](const Owner& o, py::ssize_t i) {
    const auto& all = list_of(o);
    const auto size = static_cast<py::ssize_t>(all.size());
    if (i < 0) i += size;
    if (i < 0 || i >= size) throw py::index_error("index out of range");
    return at(o, all[static_cast<std::size_t>(i)]);
  });
  type.def("__getitem__", [list_of, at](const Owner& o, const py::slice& range) {
    const auto& all = list_of(o);
    std::size_t first = 0, stop = 0, step = 0, count = 0;
    if (!range.compute(all.size(), &first, &stop, &step, &count)) throw py::error_already_set();
    py::list out(count);
    for (std::size_t i = 0; i < count; ++i, first += step) out[i] = at(o, all[first]);
    return out;
  });
  py::module_::import("collections.abc").attr("Sequence").attr("register")(type);
}

template <class T>
void as_sequence(py::class_<views<T>>& type) {
  as_sequence(
      type, [](const views<T>& v) -> const std::vector<T>& { return *v; },
      [](const views<T>& v, const T& value) { return element(v.of, value); });
}

/// A property whose value is a member.
template <class T, class M>
auto get(M T::*member) {
  return [member](const view<T>& v) -> const M& { return (*v).*member; };
}

}  // namespace troupe::planners::python
