#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "messages/domain/address.hpp"

namespace troupe {

/// Reference-counted bytes: a vector's, or a socket library's buffer. Copying a payload copies a
/// pointer.
class payload {
 public:
  payload() = default;
  /// The bytes of numbers.
  template <class T>
  explicit payload(std::vector<T> values) {
    auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    view_ = std::as_bytes(std::span{*owner});
    owner_ = std::move(owner);
  }
  payload(std::shared_ptr<const void> owner, std::span<const std::byte> view)
      : owner_{std::move(owner)}, view_{view} {}

  std::span<const std::byte> bytes() const { return view_; }
  bool empty() const { return view_.empty(); }
  /// A copy as numbers; a rest that is shorter than one is left out.
  template <class T>
  std::vector<T> values() const {
    std::vector<T> all(view_.size() / sizeof(T));
    if (!all.empty()) std::memcpy(all.data(), view_.data(), all.size() * sizeof(T));
    return all;
  }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> view_;
};

/// A frame: a MessagePack header (envelope and message) and a body of raw bytes, which is never
/// copied.
struct frame {
  payload header;
  payload body;

  std::size_t size() const { return header.bytes().size() + body.bytes().size(); }
};

/// The part of a header that is decoded without the message.
struct envelope {
  std::uint16_t type = 0;
  address from = 0;
  address to = 0;
};

}  // namespace troupe
