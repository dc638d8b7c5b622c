#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe {

/// Replaces a file: a reader, also after a crash or a power cut, finds the old contents or
/// the new ones, never half of them. Writes FILE.new beside it, syncs that, renames it, and syncs
/// the directory. `mode`: the new file's permissions; none: what the process's umask allows. Not
/// for two writers of one file at a time.
expected<void> write_whole_file(const std::string& file,
                                const std::vector<std::span<const std::byte>>& parts,
                                std::optional<unsigned> mode = {});
expected<void> write_whole_file(const std::string& file, const std::string& text,
                                std::optional<unsigned> mode = {});

/// Writes a file's next bytes. False: they cannot be written.
using byte_sink = std::function<bool(std::span<const std::byte>)>;
/// The same for contents that are never in memory as a whole. `write_to` is called once, and passes
/// the bytes on in order. If it returns false, the file stays as it is.
expected<void> write_whole_file(const std::string& file,
                                const std::function<bool(const byte_sink&)>& write_to,
                                std::optional<unsigned> mode = {});

}  // namespace troupe
