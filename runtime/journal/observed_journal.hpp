#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/journal/journal.hpp"

namespace troupe::runtime {

/// A journal that calls an observer for every entry once it is durable, before append returns.
class observed_journal final : public journal {
 public:
  using observer = std::function<void(const journal_entry&)>;

  observed_journal(std::shared_ptr<journal> inner, observer on_entry)
      : inner_{std::move(inner)}, on_entry_{std::move(on_entry)} {}

  using journal::append;
  [[nodiscard]] expected<void> append(std::span<const journal_entry> batch) override {
    if (auto ok = inner_->append(batch); !ok) return ok;
    for (const auto& e : batch) on_entry_(e);
    return {};
  }
  std::uint64_t id() const override { return inner_->id(); }
  expected<void> replay(const observer& each) const override { return inner_->replay(each); }
  [[nodiscard]] expected<void> compact(std::span<const journal_entry> snapshot) override {
    return inner_->compact(snapshot);
  }
  std::uint64_t size() const override { return inner_->size(); }
  expected<void> check() override { return inner_->check(); }

 private:
  std::shared_ptr<journal> inner_;
  observer on_entry_;
};

}  // namespace troupe::runtime
