#pragma once

#include <string>

namespace troupe::testing {

/// Lines of docs/wire.md between which everything is made from the code.
inline const std::string reference_begin =
    "<!-- Made from the types and comments of messages/ by tests/messages; do not edit. -->\n";
inline const std::string reference_end = "<!-- End of the part that is made. -->\n";

/// That part: a section for every message, record, enum and journal entry. Types and numbers come
/// from the types that the codec packs; names and meanings from the headers in this folder:
///
///   `///` above a struct          the section's text
///   a comment of a member         the row's meaning: after it, or in the lines above it
///   a comment of an enumerator    likewise
///   `//` above a file's namespace the introduction to the file's messages
///
/// A comment of several members in one declaration is the first one's. Problems, such as a message
/// without text, are added to `problems`, a line each.
std::string wire_reference(const std::string& messages_folder, std::string& problems);

}  // namespace troupe::testing
