#pragma once

#include <cstdint>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/domain/address.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The state of a frame that a gateway holds until it has passed it on:
///
///             first part            last part              accepted, link through
///   waiting ------------> sending ------------> draining ------------------------> over
///
///   waiting   until the arbiter starts it and its first part has crossed the (paced) link
///   sending   its parts are passed to the transport, each when its bytes have crossed the link; a
///             frame of one part passes through this state in one call
///   draining  all parts passed on; the transport has queued frames of it, or the link is still
///   busy over      released: the table may erase it
///
/// The sender's credit is returned exactly once: when its bytes have left the sender's node pairs,
/// and at the latest when the transfer is over. Invariants check every transition.
class transfer_state {
 public:
  enum class phase : std::uint8_t { waiting, sending, draining, over };

  transfer_state() = default;
  /// `crosses`: it is over only after link_ended(); else as soon as the transport has accepted it.
  transfer_state(std::uint32_t parts, bool crosses)
      : phase_{phase::waiting}, parts_{parts}, link_through_{!crosses} {
    TROUPE_INVARIANT(parts > 0, "a transfer has a part");
  }

  phase now() const { return phase_; }

  /// The next part is passed to the transport, as frames of which some may be queued.
  void part_begins(std::uint32_t part) {
    TROUPE_INVARIANT(phase_ == phase::waiting || phase_ == phase::sending,
                     "a part begins before the last one has been sent");
    TROUPE_INVARIANT(part == parts_sent_ && part < parts_,
                     "the parts of a transfer are sent in their order, each once");
    phase_ = phase::sending;
  }
  void frame_queued() {
    TROUPE_INVARIANT(phase_ == phase::sending, "a frame is queued for a part that is being sent");
    ++queued_;
  }
  void part_ends() {
    TROUPE_INVARIANT(phase_ == phase::sending, "a part ends while it is being sent");
    if (++parts_sent_ == parts_) phase_ = phase::draining;
  }

  /// The transport has accepted a queued frame, or it was dropped for its age.
  void frame_gone() {
    TROUPE_INVARIANT(queued_ > 0 && (phase_ == phase::sending || phase_ == phase::draining),
                     "a frame that is gone had been queued");
    --queued_;
  }
  /// It no longer occupies the link.
  void link_ended() {
    TROUPE_INVARIANT(phase_ == phase::draining && !link_through_,
                     "a transfer leaves its link once, after its last part was sent");
    link_through_ = true;
  }

  bool all_accepted() const { return phase_ == phase::draining && queued_ == 0; }
  bool is_link_through() const { return link_through_; }

  /// True once: the sender's credit is to be returned now.
  bool take_credit() { return !std::exchange(credited_, true); }

  /// It is released: completely passed on, or dropped before any part was.
  void end(bool dropped) {
    TROUPE_INVARIANT(credited_, "a transfer returns its sender's credit before it ends");
    TROUPE_INVARIANT(dropped ? phase_ == phase::waiting : all_accepted() && link_through_,
                     "a transfer ends when all of it has been passed on, or before any of it was");
    phase_ = phase::over;
  }

 private:
  phase phase_ = phase::over;
  std::uint32_t parts_ = 0, parts_sent_ = 0, queued_ = 0;
  bool link_through_ = false, credited_ = false;
};

}  // namespace troupe::actors
