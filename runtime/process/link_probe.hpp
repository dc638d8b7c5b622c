#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/link_rates.hpp"

// Measures the link between two machines over plain TCP connections, one for each flow
// (docs/profiles.md, "Links"). One machine listens; the other connects and decides what is sent.
// Nothing is encrypted, and nothing that is sent means anything.

namespace troupe::runtime {

/// How long either side waits for the other.
inline constexpr double link_answer_s = 10;
inline constexpr std::uint32_t max_link_flows = 64;

struct link_measurement {
  double round_trip_s = 0;  // of eight bytes
  std::uint32_t flows = 1;
  std::vector<link_rate> rates{};       // of a tensor that all flows carry together
  std::vector<link_rate> flow_rates{};  // of one that a single flow carries
};

/// Measures to the listener at HOST:PORT, with tensors of 64 KiB to 64 MiB and up to `flows`
/// connections. Fails with a sentence if nobody answers within `answer_s`, something else listens
/// there, or the connection breaks.
expected<link_measurement> measure_link(const std::string& address, std::uint32_t flows,
                                        double answer_s = link_answer_s);

/// The other side.
class link_listener {
 public:
  /// Listens at HOST:PORT; port 0: any free one.
  static expected<link_listener> open(const std::string& address);
  link_listener(link_listener&&) noexcept;
  link_listener& operator=(link_listener&&) noexcept;
  ~link_listener();

  /// HOST:PORT, with the port that was chosen.
  const std::string& address() const;

  /// Waits for a measurement, for any time, and answers it until its end. Returns the address of
  /// its machine. `ignored`: called with a sentence about each connection that is none. Fails if
  /// the measurement is silent for link_answer_s, or breaks the protocol.
  expected<std::string> serve(const std::function<void(const std::string&)>& ignored);

 private:
  struct state;
  explicit link_listener(std::unique_ptr<state> s);
  std::unique_ptr<state> state_;
};

}  // namespace troupe::runtime
