#pragma once

#include <fmt/format.h>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <ctime>
#include <string>
#include <string_view>

// Rules of RFC 9110 and 9112 that Boost leaves to its users; for http_session.cpp alone.

namespace troupe::web {

/// A time since 1970 as a field has it: Sun, 06 Nov 1994 08:49:37 GMT.
inline std::string http_date(double wall_s) {
  const auto now = static_cast<std::time_t>(wall_s);
  std::tm t{};
  ::gmtime_r(&now, &t);
  constexpr std::string_view days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::string_view months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", days[t.tm_wday], t.tm_mday,
                     months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

/// The reason to refuse a request (RFC 9112, 3.2 and 6.1), or null. Boost accepts such requests,
/// but a proxy may frame them differently, and take a part of a body for the next request
/// (smuggling).
inline const char* fault_of(const boost::beast::http::request<boost::beast::http::string_body>& m) {
  namespace http = boost::beast::http;
  const auto hosts = m.count(http::field::host);
  if (hosts > 1) return "a request has one Host field";
  if (hosts == 0 && m.version() > 10) return "a request of HTTP/1.1 needs a Host field";
  const auto encoding = m[http::field::transfer_encoding];
  if (encoding.empty()) return nullptr;
  if (m.version() <= 10) return "HTTP/1.0 has no Transfer-Encoding";
  if (m.count(http::field::transfer_encoding) > 1 || !boost::beast::iequals(encoding, "chunked"))
    return "Transfer-Encoding can only be chunked";
  return nullptr;
}

}  // namespace troupe::web
