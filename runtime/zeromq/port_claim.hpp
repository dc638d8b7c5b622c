#pragma once

#include <utility>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// A range of tcp ports on 127.0.0.1 that this process means to use, or has its children use, for
/// as long as the object lives. Claims keep programs apart that make them, before anybody listens;
/// a port at which another process listens is refused, too.
class port_claim {
 public:
  port_claim() = default;
  /// Claims `count` ports from `first` on, or says which one is in use, and by which process.
  static expected<port_claim> take(int first, int count);

  port_claim(port_claim&& other) noexcept : sockets_{std::exchange(other.sockets_, {})} {}
  port_claim& operator=(port_claim&& other) noexcept {
    std::swap(sockets_, other.sockets_);
    return *this;
  }
  ~port_claim();

 private:
  std::vector<int> sockets_;
};

}  // namespace troupe::runtime
