#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Reads a stream of server-sent events as WHATWG's standard has them, in pieces that end anywhere.
class event_stream {
 public:
  struct event {
    std::string kind;  // empty: a message
    std::string data;
  };
  /// False: no more is needed.
  using listener = std::function<bool(const event&)>;

  explicit event_stream(listener l) : listener_{std::move(l)} {}

  /// False once the listener wants no more.
  bool take(std::string_view bytes);
  /// The stream is over. An event without the empty line behind it counts, too.
  void end();

 private:
  bool take_line(std::string_view line);
  bool dispatch();

  listener listener_;
  std::string rest_;
  event next_;
  bool has_data_ = false, begun_ = false, after_cr_ = false, over_ = false;
};

}  // namespace troupe::cli
