#include "web/http/request_target.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

namespace troupe::web {

namespace {

tl::unexpected<reason> failure(std::string why) {
  return refuse(reason::kind::malformed, "the request's target " + std::move(why));
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  const auto lower = static_cast<char>(c | 0x20);
  if (lower >= 'a' && lower <= 'f') return static_cast<unsigned>(lower - 'a' + 10);
  return std::nullopt;
}

expected<std::string> decoded(std::string_view path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      const auto high = i + 1 < path.size() ? hex_digit(path[i + 1]) : std::nullopt;
      const auto low = i + 2 < path.size() ? hex_digit(path[i + 2]) : std::nullopt;
      if (!high || !low) return failure("has a '%' without two hexadecimal digits");
      c = static_cast<char>(*high << 4 | *low);
      i += 2;
    }
    // Paths are quoted in error messages and logs.
    if (std::iscntrl(static_cast<unsigned char>(c))) return failure("has a control character");
    out += c;
  }
  return out;
}

// Checked after decoding: "%2e%2e" is ".." too, and a reverse proxy in front may resolve it to a
// path that it would not have let through.
bool has_dot_segment(std::string_view path) {
  while (!path.empty()) {
    path.remove_prefix(1);  // '/'
    const auto segment = path.substr(0, path.find('/'));
    if (segment == "." || segment == "..") return true;
    path.remove_prefix(segment.size());
  }
  return false;
}

/// The text after http:// or https://; nothing: the target is not in absolute form.
std::optional<std::string_view> after_scheme(std::string_view target) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.size() >= scheme.size() && std::equal(scheme.begin(), scheme.end(), target.begin(),
                                                     [&](char b, char a) { return same(a, b); }))
      return target.substr(scheme.size());
  return std::nullopt;
}

}  // namespace

expected<request_target> parse_target(std::string_view target) {
  request_target t;
  if (target == "*") return request_target{"*", {}, {}};
  if (const auto rest = after_scheme(target)) {
    t.authority = rest->substr(0, rest->find_first_of("/?"));
    if (t.authority.empty()) return failure("names no host");
    target = rest->substr(t.authority.size());
  } else if (!target.starts_with('/')) {
    return failure("begins neither with '/' nor with http://");
  }
  const auto mark = target.find('?');
  if (mark != target.npos) t.query = target.substr(mark + 1);
  auto path = decoded(target.substr(0, mark));
  if (!path) return refuse(path.error());
  t.path = path->empty() ? "/" : std::move(*path);
  if (has_dot_segment(t.path)) return failure("has a segment '.' or '..'");
  return t;
}

}  // namespace troupe::web
