#include <fmt/format.h>
#include <pybind11/embed.h>
#include <pybind11/stl.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planners/policy/python_plugin.hpp"
#include "python/policies/call.hpp"
#include "python/policies/call_limit.hpp"
#include "python/policies/decisions.hpp"
#include "python/policies/interpreter.hpp"
#include "python/policies/snapshot_view.hpp"

PYBIND11_EMBEDDED_MODULE(_troupe_policies, m) {
  using namespace troupe::planners::python;
  define_cluster(m);
  define_jobs(m);
  define_snapshot(m);
}

namespace troupe::planners::python {

namespace {

/// The snapshot's time in Python: from the first object to the last that can be used.
class open_call {
 public:
  open_call(const snapshot& s, random_source& random) : now_{std::make_shared<call>(s, random)} {}
  ~open_call() { now_->end(); }
  open_call(const open_call&) = delete;
  open_call& operator=(const open_call&) = delete;

  const std::shared_ptr<call>& now() const { return now_; }

 private:
  std::shared_ptr<call> now_;
};

/// The file, run as a module of its own: two policies do not see each other's names. Its code has
/// the file's name as the user gave it, which every complaint begins with.
py::module_ run_file(const std::string& file) {
  static int modules = 0;
  const auto name = fmt::format("troupe_policy_{}", ++modules);
  const auto made = py::module_::import("types").attr("ModuleType")(name);
  made.attr("__file__") = file;
  const auto sys = py::module_::import("sys");
  sys.attr("modules")[py::str(name)] = made;
  const auto slash = file.rfind('/');  // what is beside the file can be imported, as in a program
  sys.attr("path").attr("insert")(0, slash == std::string::npos ? "." : file.substr(0, slash + 1));
  const auto builtins = py::module_::import("builtins");
  const py::object text = py::module_::import("io").attr("open_code")(
      py::module_::import("os.path").attr("abspath")(file));
  const py::object code = builtins.attr("compile")(text.attr("read")(), file, "exec");
  text.attr("close")();
  builtins.attr("exec")(code, made.attr("__dict__"));
  return made;
}

/// The file's own classes that derive from Policy.
std::vector<py::object> policies_in(const py::module_& file) {
  const auto base = py::module_::import("troupe.policy").attr("Policy");
  std::vector<py::object> found;
  for (const auto& [name, value] : file.attr("__dict__").cast<py::dict>()) {
    if (!PyType_Check(value.ptr()) || value.is(base)) continue;
    if (PyObject_IsSubclass(value.ptr(), base.ptr()) != 1) continue;
    if (value.attr("__module__").equal(file.attr("__name__")))
      found.push_back(py::reinterpret_borrow<py::object>(value));
  }
  return found;
}

py::object class_in(const py::module_& module, const std::string& file,
                    const std::string& of_class) {
  std::string names;
  std::vector<py::object> meant;
  for (const auto& type : policies_in(module)) {
    const auto name = type.attr("__name__").cast<std::string>();
    names += (names.empty() ? "" : ", ") + name;
    if (of_class.empty() || name == of_class) meant.push_back(type);
  }
  if (names.empty())
    throw policy_failure(file + ": has no class that derives from troupe.Policy; expected one");
  if (meant.empty())
    throw policy_failure(fmt::format("{}: has no policy {}; it has {}", file, of_class, names));
  if (meant.size() > 1)
    throw policy_failure(
        fmt::format("{0}: has several policies ({1}); expected the name of one: {0}:{2}", file,
                    names, meant[0].attr("__name__").cast<std::string>()));
  return meant[0];
}

constexpr double max_limit_s = 86'400;

class python_policy final : public policy {
 public:
  /// Needs the interpreter_lock.
  python_policy(std::string file, const std::string& of_class) : file_{std::move(file)} {
    guarded([&] {
      object_ = class_in(run_file(file_), file_, of_class)();
      name_ = attribute<py::str>("name", "a string").cast<std::string>();
      const py::object round = object_.attr("round_s");
      if (!PyNumber_Check(round.ptr()) || py::isinstance<py::str>(round))
        throw policy_failure(fmt::format("{}: round_s is not a number of seconds", file_));
      round_s_ = py::float_(round);
      const double limit_s = py::float_(object_.attr("limit_s"));
      if (!(limit_s > 0 && limit_s <= max_limit_s))
        throw policy_failure(fmt::format("{}: limit_s is {:g}, expected seconds above 0 to {:g}",
                                         file_, limit_s, max_limit_s));
      limit_ = std::make_unique<call_limit>(limit_s);
    });
  }
  ~python_policy() override {
    const interpreter_lock lock;
    object_.release().dec_ref();
    limit_.reset();
  }
  python_policy(const python_policy&) = delete;
  python_policy& operator=(const python_policy&) = delete;

  std::string_view name() const override { return name_; }
  policy_traits traits() const override { return {.round_s = round_s_}; }

  /// `parameters = {"name": (low, high)}` of the class: attributes of these names.
  std::vector<parameter> parameters() override {
    const interpreter_lock lock;
    return guarded([&] {
      std::vector<parameter> all;
      for (const auto& [name, range] : attribute<py::dict>("parameters", "a dict").cast<ranges>()) {
        const auto whole = py::isinstance<py::int_>(object_.attr(name.c_str()));
        all.emplace_back(name, range.first, range.second, whole, [this, name, whole](double value) {
          const interpreter_lock held;
          object_.attr(name.c_str()) =
              whole ? py::object{py::int_(std::llround(value))} : py::object{py::float_(value)};
        });
      }
      return all;
    });
  }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const interpreter_lock lock;
    const open_call open{s, random};
    return limited("decide()", [&] {
      const auto returned =
          object_.attr("decide")(snapshot_view{open.now()}, random_view{open.now()});
      return read_decisions(returned, *open.now(), file_);
    });
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto at = s.waiting.find(job);
    if (at == s.waiting.end()) return not_waiting(job);
    const interpreter_lock lock;
    random_source none{0};
    const open_call open{s, none};
    return limited("why_waiting()", [&]() -> reason {
      const py::object why = object_.attr("why_waiting")(snapshot_view{open.now()},
                                                         view<job_view>{open.now(), &at->second});
      if (!py::isinstance<py::str>(why))
        throw policy_failure(file_ + ": why_waiting() does not return a string");
      return {reason::kind::insufficient, why.cast<std::string>()};
    });
  }

 private:
  using ranges = std::map<std::string, std::pair<double, double>>;

  template <class T>
  py::object attribute(const char* of, const char* expected) const {
    const py::object value = object_.attr(of);
    if (!py::isinstance<T>(value))
      throw policy_failure(fmt::format("{}: {} is not {}", file_, of, expected));
    return value;
  }

  /// A call that was interrupted has not decided, whatever it returns.
  template <class F>
  auto limited(const char* what, F&& run) const -> decltype(run()) {
    limit_->begin();
    const auto too_long = [&] {
      return policy_failure(fmt::format("{}: {} has not answered within {:g} s (limit_s)", file_,
                                        what, limit_->limit_s()));
    };
    try {
      auto result = guarded(run);
      if (limit_->end()) throw too_long();
      return result;
    } catch (...) {
      if (limit_->end()) throw too_long();
      throw;
    }
  }

  template <class F>
  auto guarded(F&& run) const -> decltype(run()) {
    try {
      return run();
    } catch (const py::error_already_set& e) {
      throw failure_of(e, file_);
    } catch (const py::cast_error& e) {
      throw policy_failure(fmt::format("{}: {}", file_, e.what()));
    }
  }

  std::string file_, name_;
  double round_s_ = 0;
  py::object object_;
  std::unique_ptr<call_limit> limit_;
};

policy* make(const char* file, const char* of_class) {
  start_interpreter();
  const interpreter_lock lock;
  py::module_::import("_troupe_policies");
  return new python_policy(file, of_class);
}

}  // namespace

}  // namespace troupe::planners::python

extern "C" __attribute__((visibility("default"))) const troupe::planners::python_plugin*
troupe_python_plugin() {
  using namespace troupe::planners;
  static constexpr python_plugin plugin{python_plugin_format, plugin_abi, python::make};
  return &plugin;
}
