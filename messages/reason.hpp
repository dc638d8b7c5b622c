#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include <tl/expected.hpp>

namespace troupe {

/// Why something was refused or must wait. `text` is a sentence for a person; `code` is for
/// programs.
struct reason {
  enum class kind : std::uint8_t {
    invalid,       // the request makes no sense
    infeasible,    // no GPU of this cluster could ever serve it
    insufficient,  // not now: too few idle GPUs
    stale,         // decided on a snapshot that is no longer true
    unknown,       // no such job, node, ...
    refused,       // not allowed: wrong key, wrong cluster, second controller
    malformed,     // bytes that do not decode
    unavailable,   // the other side cannot be reached
    device_lost,   // a device can do nothing more until its node is started again
  };
  kind code = kind::invalid;
  std::string text;

  static constexpr auto fields() { return std::tuple{&reason::code, &reason::text}; }
  bool operator==(const reason&) const = default;
};

/// A value, or the reason why there is none.
template <class T>
using expected = tl::expected<T, reason>;

/// For returning a reason from a function that gives expected<T>.
inline tl::unexpected<reason> refuse(reason::kind code, std::string text) {
  return tl::unexpected<reason>(reason{code, std::move(text)});
}

}  // namespace troupe
