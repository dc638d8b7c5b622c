#include "web/http/browser_requests.hpp"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

namespace troupe::web {

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_port(std::string_view text) {
  return text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

}  // namespace

// DNS rebinding: a foreign page can give its own name the address 127.0.0.1, but the browser still
// sends that name in Host. A strict parser is needed: what is not exactly NAME[:PORT] or
// [V6][:PORT] is refused, not repaired.
std::optional<std::string> name_in_host(std::string_view host) {
  const bool v6 = host.starts_with('[');
  if (v6) host.remove_prefix(1);
  const auto end = host.find(v6 ? ']' : ':');
  auto rest = end == host.npos ? std::string_view{} : host.substr(end + (v6 ? 1 : 0));
  if (v6 && end == host.npos) return std::nullopt;
  if (!rest.empty() && (rest[0] != ':' || !is_port(rest.substr(1)))) return std::nullopt;
  std::string name{host.substr(0, end)};
  std::transform(name.begin(), name.end(), name.begin(), lower);
  const auto allowed = [v6](char c) { return is_name_character(c) || (v6 && c == ':'); };
  if (name.empty() || !std::all_of(name.begin(), name.end(), allowed)) return std::nullopt;
  // A fully qualified name: "localhost." is localhost.
  if (name.ends_with('.')) name.pop_back();
  return name;
}

bool is_local_host(std::string_view host) {
  // HTTP/1.0 clients may send none; browsers always do.
  if (host.empty()) return true;
  const auto name = name_in_host(host);
  if (!name) return false;
  if (*name == "localhost") return true;
  boost::system::error_code bad;
  const auto address = boost::asio::ip::make_address(*name, bad);
  return !bad && address.is_loopback();
}

bool is_cross_origin(const http_request& r) {
  if (!r.fetch_site.empty() && r.fetch_site != "same-origin" && r.fetch_site != "none") return true;
  if (r.origin.empty()) return false;
  // "null", of sandboxed pages and files, has no scheme, and is another origin.
  const auto host = r.origin.find("://");
  return host == std::string::npos || r.origin.substr(host + 3) != r.host;
}

}  // namespace troupe::web
