#pragma once

#include <memory>
#include <utility>

namespace troupe {

/// An optional value that takes a pointer's room while it is absent: for large records that most of
/// a list's elements lack. Otherwise it is as std::optional.
template <class T>
class boxed {
 public:
  using value_type = T;

  boxed() = default;
  boxed(T value) : held_{std::make_unique<T>(std::move(value))} {}
  boxed(const boxed& other) : held_{other ? std::make_unique<T>(*other) : nullptr} {}
  boxed(boxed&&) noexcept = default;
  boxed& operator=(const boxed& other) {
    held_ = other ? std::make_unique<T>(*other) : nullptr;
    return *this;
  }
  boxed& operator=(boxed&&) noexcept = default;

  bool has_value() const { return held_ != nullptr; }
  explicit operator bool() const { return has_value(); }
  T& operator*() { return *held_; }
  const T& operator*() const { return *held_; }
  T* operator->() { return held_.get(); }
  const T* operator->() const { return held_.get(); }

  void reset() { held_.reset(); }
  template <class... A>
  T& emplace(A&&... arguments) {
    held_ = std::make_unique<T>(std::forward<A>(arguments)...);
    return *held_;
  }

  friend bool operator==(const boxed& a, const boxed& b) {
    return a && b ? *a == *b : a.has_value() == b.has_value();
  }

 private:
  std::unique_ptr<T> held_;
};

}  // namespace troupe
