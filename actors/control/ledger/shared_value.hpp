#pragma once

#include <memory>
#include <utility>

namespace troupe::actors {

/// An immutable value shared by copies; compares by value.
template <class T>
class shared_value {
 public:
  shared_value() : shared_value(T{}) {}
  explicit shared_value(T v) : value_{std::make_shared<const T>(std::move(v))} {}

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  operator const std::shared_ptr<const T>&() const { return value_; }

  friend bool operator==(const shared_value& a, const shared_value& b) {
    return a.value_ == b.value_ || *a.value_ == *b.value_;
  }

 private:
  std::shared_ptr<const T> value_;
};

}  // namespace troupe::actors
