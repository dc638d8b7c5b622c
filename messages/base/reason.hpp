#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <tl/expected.hpp>

#include "messages/base/fields.hpp"

namespace troupe {

/// An error: `code` is for programs, `text` is a sentence for people.
struct reason {
  enum class kind : std::uint8_t {
    invalid,        // the request is invalid
    infeasible,     // no GPU of this cluster can ever serve it
    insufficient,   // too few idle GPUs for now
    stale,          // decided on an outdated snapshot
    unknown,        // no such job, node, peer, ...
    refused,        // not allowed: wrong key, wrong cluster, second controller
    malformed,      // bytes that do not decode
    unavailable,    // the other side cannot be reached
    device_lost,    // a device is unusable until its node is restarted
    out_of_memory,  // a device has too little memory for the work
    worker_lost,    // the process that computes a program's layers has ended
  };
  kind code = kind::invalid;  // for programs
  std::string text;           // a sentence for people; empty: no error

  TROUPE_FIELDS(reason, code, text);
};

/// A value, or the reason why there is none.
template <class T>
using expected = tl::expected<T, reason>;

/// Returns a reason from a function that returns expected<T>.
inline tl::unexpected<reason> refuse(reason::kind code, std::string text) {
  return tl::unexpected<reason>(reason{code, std::move(text)});
}
/// The same with the reason of another call that failed.
inline tl::unexpected<reason> refuse(reason why) {
  return tl::unexpected<reason>(std::move(why));
}

}  // namespace troupe
