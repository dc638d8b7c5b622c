#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// A regular expression by PCRE2, with Unicode classes, of which white space is that of Oniguruma.
/// Bytes that are not UTF-8 never match.
class pattern {
 public:
  static expected<pattern> compile(const std::string& expression);

  struct piece {
    std::string_view text;
    bool matched = false;
  };
  /// The text in pieces: what matches, one match after another, and what is between. Empty matches
  /// are none.
  void split(std::string_view text, const std::function<void(piece)>& use) const;

 private:
  std::shared_ptr<const void> code_;
};

}  // namespace troupe::gpu
