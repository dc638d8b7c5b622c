#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "messages/base/reason.hpp"

namespace troupe::planners {

/// A number of a policy that its user may set: `--policy-option POLICY.NAME=NUMBER`, or
/// `policy_options:` of a cluster file. Refers to the policy.
class parameter {
 public:
  /// A member of the policy: whole numbers alone, if it is of an integral type.
  template <class Number>
  parameter(std::string name, Number& at, double low, double high)
      : parameter{std::move(name), low, high, std::is_integral_v<Number>,
                  [&at](double value) { at = static_cast<Number>(value); }} {}
  parameter(std::string name, std::optional<double>& at, double low, double high)
      : parameter{std::move(name), low, high, false, [&at](double value) { at = value; }} {}
  /// A number that is elsewhere.
  parameter(std::string name, double low, double high, bool whole, std::function<void(double)> set)
      : name_{std::move(name)}, low_{low}, high_{high}, whole_{whole}, set_{std::move(set)} {}

  const std::string& name() const { return name_; }

  /// Refuses a value outside of its range.
  expected<void> set(double value) const {
    if (value >= low_ && value <= high_ && (!whole_ || value == std::floor(value))) {
      set_(value);
      return {};
    }
    return refuse(reason::kind::invalid,
                  fmt::format("found {:g}, expected a {} from {:g} to {:g}", value,
                              whole_ ? "whole number" : "number", low_, high_));
  }

 private:
  std::string name_;
  double low_ = 0, high_ = 0;
  bool whole_ = false;
  std::function<void(double)> set_;
};

}  // namespace troupe::planners
