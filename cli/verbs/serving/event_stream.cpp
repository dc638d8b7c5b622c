#include "cli/verbs/serving/event_stream.hpp"

#include <utility>

namespace troupe::cli {

// Lines end in CR, LF, or both: the LF behind a CR may come in the next piece.
bool event_stream::take(std::string_view bytes) {
  for (const char c : bytes) {
    if (over_) return false;
    if (c == '\n' && std::exchange(after_cr_, false)) continue;
    after_cr_ = c == '\r';
    if (c == '\n' || c == '\r')
      over_ = !take_line(std::exchange(rest_, {}));
    else
      rest_ += c;
  }
  return !over_;
}

void event_stream::end() {
  if (!over_ && !rest_.empty()) over_ = !take_line(std::exchange(rest_, {}));
  if (!over_) dispatch();
  over_ = true;
}

// A line is FIELD: VALUE, with one space or none; a comment has no field, and an empty line ends an
// event. Unknown fields are passed over.
bool event_stream::take_line(std::string_view line) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (!std::exchange(begun_, true) && line.starts_with(mark)) line.remove_prefix(mark.size());
  if (line.empty()) return dispatch();
  const auto colon = line.find(':');
  const auto field = line.substr(0, colon);
  auto value = colon == line.npos ? std::string_view{} : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  // `error` is a field of older versions of llama.cpp's server.
  if (field == "error") next_.kind = "error";
  if (field == "event") next_.kind = value;
  if (field == "data" || field == "error") {
    if (std::exchange(has_data_, true)) next_.data += '\n';
    next_.data += value;
  }
  return true;
}

bool event_stream::dispatch() {
  const auto e = std::exchange(next_, {});
  return !std::exchange(has_data_, false) || listener_(e);
}

}  // namespace troupe::cli
