#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <caf/all.hpp>

#include "runtime/host/log.hpp"

namespace troupe::actors {

/// An actor has thrown: logs the exception, and returns the error with which the actor ends.
inline caf::error actor_failure(std::string_view who, const std::exception_ptr& thrown) {
  std::string text = "unknown exception";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
  }
  runtime::log(runtime::log_level::error, who, text);
  return caf::make_error(caf::sec::runtime_error, fmt::format("{}: {}", who, text));
}

/// The text of such an error; of other errors CAF's description.
inline std::string sentence_of(const caf::error& why) {
  if (const auto& words = why.context(); words.match_elements<std::string>())
    return words.get_as<std::string>(0);
  return caf::to_string(why);
}

/// Call first in an actor: exceptions in `start` and in all handlers end it with actor_failure().
template <class Self, class F>
void begin_actor(Self* self, std::string_view who, F&& start) {
  self->set_exception_handler(
      [who](std::exception_ptr& thrown) { return actor_failure(who, thrown); });
  try {
    start();
  } catch (...) {
    self->quit(actor_failure(who, std::current_exception()));
  }
}

}  // namespace troupe::actors
