#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "web/http/http_server.hpp"

// A server's paths as a table: a path is one row, and the checks that come before its handler are
// the same for all rows.

namespace troupe::web {

struct route_facts {
  /// '#' at a segment's place stands for a whole number, '*' at the end for the rest, which may be
  /// empty and have slashes.
  std::string_view path;
  std::string_view method = "GET";  // which HEAD may ask as well; or POST
  bool needs_key = true;            // if the server has API keys
};

/// A request on its way to a handler.
struct routed_request {
  const http_request& request;
  std::string_view argument;  // the part of the path that '#' or '*' stands for
  const std::shared_ptr<http_reply>& reply;
};

template <class Server>
struct route : route_facts {
  /// Called on the HTTP server's thread: replies, now or later.
  void (*answer)(Server&, const routed_request&);
};

/// The part of `path` that the pattern's '#' or '*' stands for, empty if it has neither; nothing:
/// the path does not match.
std::optional<std::string_view> match_path(std::string_view pattern, std::string_view path);

/// An error before any handler is asked. Servers put it into their own JSON.
struct http_refusal {
  int status;
  std::string sentence;
  http_fields fields;
};

/// The value of Allow for a row. `more`: methods that the server answers for every row.
std::string allowed_methods(const route_facts& to, std::string_view more);

/// 404 without a row, 405 for another method of it, 401 if it needs a key and the request has none
/// that is known; nothing: the handler answers.
std::optional<http_refusal> refusal_of(const http_request& r, const route_facts* to, bool has_key,
                                       std::string_view more_methods = {});

template <class Server>
struct found_route {
  const route<Server>* to = nullptr;  // null: no row has this path
  std::string_view argument;          // of `path`'s text
};

/// The first row that matches.
template <class Server>
found_route<Server> find_route(std::span<const route<Server>> all, std::string_view path) {
  for (const auto& one : all)
    if (const auto argument = match_path(one.path, path)) return {&one, *argument};
  return {};
}

}  // namespace troupe::web
