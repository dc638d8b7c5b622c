#pragma once

#include <map>
#include <memory>
#include <utility>

#include "actors/control/controller_by_hand.hpp"

namespace troupe::actors::tests {

/// Clients have the keys that their addresses stand for.
class keyed_transport final : public runtime::transport {
 public:
  keyed_transport(std::shared_ptr<runtime::transport> inner,
                  std::map<address, runtime::caller> keys)
      : inner_{std::move(inner)}, keys_{std::move(keys)} {}

  address self() const override { return inner_->self(); }
  bool send(address to, frame f, std::uint32_t lane) override {
    return inner_->send(to, std::move(f), lane);
  }
  void listen(receiver r) override { inner_->listen(std::move(r)); }
  void handled(const frame& f) override { inner_->handled(f); }
  runtime::caller caller_of(const frame& f) const override {
    const auto e = peek(f.header.bytes());
    const auto known = e ? keys_.find(e->from) : keys_.end();
    return known == keys_.end() ? runtime::caller{} : known->second;
  }

 private:
  std::shared_ptr<runtime::transport> inner_;
  std::map<address, runtime::caller> keys_;
};

inline constexpr address ann = a_client, bob = a_client + 1, root = a_client + 2;

inline std::shared_ptr<runtime::transport> with_keys(std::shared_ptr<runtime::transport> inner) {
  return std::make_shared<keyed_transport>(
      std::move(inner), std::map<address, runtime::caller>{
                            {ann, {"ann", false}}, {bob, {"bob", false}}, {root, {"root", true}}});
}

}  // namespace troupe::actors::tests
