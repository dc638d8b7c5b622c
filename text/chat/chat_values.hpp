#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "messages/base/reason.hpp"
#include "text/chat/chat_message.hpp"
#include "text/jinja/value.hpp"

// The values that a template gets of a conversation; for chat_template.cpp alone.

namespace troupe::gpu {

using template_names = std::map<std::string, jinja::value, std::less<>>;

/// How a template reads a message: its content as a text, or as a list of parts.
enum class content_form { text, parts };

/// The messages as a list of dictionaries: role, content, and the further keys that they have.
/// Fails (invalid) if these cannot be read. All texts count as a message's, except for known roles.
expected<jinja::value> values_of(std::span<const chat_message> messages, content_form form);

/// Adds the members of a JSON object to a template's names; an empty text has none. Fails (invalid)
/// if it is no object, or nested too deeply.
expected<void> add_names(std::string_view object, template_names& to);

}  // namespace troupe::gpu
