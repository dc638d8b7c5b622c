#include "python/policies/decisions.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "planners/policy/checked_policy.hpp"

namespace troupe::planners::python {

namespace py = pybind11;

namespace {

/// The complaint about a decision, as a sentence without the place.
struct wrong_decision : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string shown(const py::handle& value) {
  return py::repr(value).cast<std::string>().substr(0, 200);
}

template <class T>
T number(const py::handle& value, const char* of) {
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    throw wrong_decision(
        fmt::format("{} is {}; expected a number that is not negative", of, shown(value)));
  }
}

job_id read_job(const py::handle& job) {
  if (py::isinstance<view<job_view>>(job)) return job.cast<const view<job_view>&>()->id;
  if (py::isinstance<py::int_>(job)) return number<job_id>(job, "its job");
  throw wrong_decision(fmt::format("its job is {}; expected a job or its number", shown(job)));
}

node_index read_node(const py::handle& value, const cluster& c) {
  const auto n = py::isinstance<view<node>>(value)
                     ? static_cast<node_index>(value.cast<const view<node>&>().at - c.nodes.data())
                     : number<node_index>(value, "its node");
  if (n >= c.nodes.size())
    throw wrong_decision(fmt::format("it is on node {} of {}", n, c.nodes.size()));
  return n;
}

allocation read_where(const py::object& where, const cluster& c) {
  if (py::isinstance<view<allocation>>(where)) return *where.cast<const view<allocation>&>();
  const char* const expected = "expected place()'s or a list of (node, number of GPUs)";
  if (!py::isinstance<py::iterable>(where))
    throw wrong_decision(fmt::format("its GPUs are {}; {}", shown(where), expected));
  allocation shares;
  for (const auto& share : where) {
    if (!py::isinstance<py::sequence>(share) || py::len(share) != 2)
      throw wrong_decision(fmt::format("its GPUs have {}; {}", shown(share), expected));
    const auto pair = py::reinterpret_borrow<py::sequence>(share);
    shares.push_back({read_node(pair[0], c), number<std::uint32_t>(pair[1], "its number of GPUs")});
  }
  return shares;
}

const plan& read_plan(const py::object& how) {
  if (!py::isinstance<view<plan>>(how))
    throw wrong_decision(fmt::format("its plan is {}; expected one of job.plans", shown(how)));
  return *how.cast<const view<plan>&>();
}

decision::kind read_kind(const std::string& kind) {
  if (kind == "start") return decision::kind::start;
  if (kind == "stop") return decision::kind::stop;
  if (kind == "move") return decision::kind::move;
  if (kind == "give_up") return decision::kind::give_up;
  throw wrong_decision(fmt::format("it is to '{}'", kind));
}

reason read_why(const py::object& why) {
  if (!py::isinstance<py::str>(why))
    throw wrong_decision(fmt::format("its reason is {}; expected a sentence", shown(why)));
  return {reason::kind::infeasible, why.cast<std::string>()};
}

decision read(const py::handle& made, const cluster& c) {
  static const auto type =
      py::object{py::module_::import("troupe.policy").attr("Decision")}.release();
  if (!py::isinstance(made, type))
    throw wrong_decision("expected troupe.start(), stop(), move() or give_up()");
  decision d;
  d.what = read_kind(made.attr("kind").cast<std::string>());
  d.job = read_job(made.attr("job"));
  if (d.starts()) {
    d.how = read_plan(made.attr("plan"));
    d.where = read_where(made.attr("where"), c);
  }
  const auto why = read_why(made.attr("why"));
  if (!why.text.empty()) d.why = why;
  return d;
}

/// The line at which a generator has yielded: "mine.py:12"; of other objects the file alone.
std::string place_in(const std::string& file, const py::object& returned) {
  if (!PyGen_Check(returned.ptr())) return file;
  const py::object frame = returned.attr("gi_frame");
  if (frame.is_none()) return file;
  return fmt::format("{}:{}", file, frame.attr("f_lineno").cast<int>());
}

}  // namespace

std::vector<decision> read_decisions(const py::object& returned, call& now,
                                     const std::string& file) {
  if (!py::isinstance<py::iterable>(returned))
    throw policy_failure(fmt::format("{}: decide() returns {}; expected a generator or a list",
                                     file, shown(returned)));
  std::vector<decision> out;
  for (const auto& made : returned) try {
      out.push_back(read(made, now.now().cluster));
      now.count(out.back());
    } catch (const wrong_decision& e) {
      throw policy_failure(
          fmt::format("{}: decides {}: {}", place_in(file, returned), shown(made), e.what()));
    }
  return out;
}

}  // namespace troupe::planners::python
