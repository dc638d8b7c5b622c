#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/wire/client.hpp"
#include "messages/wire/frame.hpp"

namespace troupe {

/// A query_reply for many clients: jobs and nodes, which are nearly all of its bytes, are encoded
/// once.
class shared_reply {
 public:
  /// Ignores the reply's request number and time.
  explicit shared_reply(const query_reply& r);

  /// The same bytes as encode(from, to, r) with this request and time. Never fails.
  frame encode_for(address from, address to, std::uint64_t request, double now_s) const;

 private:
  std::string policy_;
  std::size_t fields_;
  std::vector<std::byte> rest_;
};

/// Bytes that one job takes in a reply.
std::size_t packed_bytes(const job_status& j);

}  // namespace troupe
