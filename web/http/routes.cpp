#include "web/http/routes.hpp"

#include <cstdint>

#include <fmt/format.h>

#include "messages/base/whole_number.hpp"

namespace troupe::web {

std::optional<std::string_view> match_path(std::string_view pattern, std::string_view path) {
  const auto variable = pattern.find_first_of("#*");
  if (variable == pattern.npos) {
    if (path != pattern) return std::nullopt;
    return std::string_view{};
  }
  if (!path.starts_with(pattern.substr(0, variable))) return std::nullopt;
  const auto rest = path.substr(variable);
  if (pattern[variable] == '*') return rest;
  const auto number = rest.substr(0, rest.find('/'));
  // Job numbers fit 64 bits, and a longer one names nothing. The text after the number is literal:
  // "/explain", or nothing.
  if (!whole_number<std::uint64_t>(number) ||
      rest.substr(number.size()) != pattern.substr(variable + 1))
    return std::nullopt;
  return number;
}

std::string allowed_methods(const route_facts& to, std::string_view more) {
  return fmt::format("{}{}", to.method == "GET" ? "GET, HEAD" : to.method, more);
}

// The order is part of the interface: a path that does not exist is 404 for every method, and a
// wrong method is reported without a key, since the table is public.
std::optional<http_refusal> refusal_of(const http_request& r, const route_facts* to, bool has_key,
                                       std::string_view more_methods) {
  if (!to) return http_refusal{404, fmt::format("no such path: '{}'", r.path), {}};
  if (r.method != to->method && !(to->method == "GET" && r.method == "HEAD"))
    return http_refusal{405,
                        fmt::format("method {} is not allowed for '{}'", r.method, r.path),
                        {{"Allow", allowed_methods(*to, more_methods)}}};
  if (to->needs_key && !has_key)
    return http_refusal{
        401, "give an API key: 'Authorization: Bearer KEY'", {{"WWW-Authenticate", "Bearer"}}};
  return std::nullopt;
}

}  // namespace troupe::web
