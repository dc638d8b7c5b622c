#pragma once

#include <vector>

#include "messages/base/descriptor.hpp"
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

 private:
  std::vector<descriptor> sockets_;
};

}  // namespace troupe::runtime
