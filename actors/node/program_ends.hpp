#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Sentences for people about a program's end.

namespace troupe::actors {

/// The signal of an exit status of 128 + n, as " (SIGTERM)": shells and keepers report the end by a
/// signal that way. Empty: it is none.
std::string signal_of(int status);

/// For a program that has ended after it was asked to stop, and has reported no save since. Empty:
/// it has ended as one that obeys, or that SIGTERM ends.
std::string end_without_save(int status);

/// The global rank that failed first, by torchrun's summary at the end of the output.
std::optional<std::uint32_t> rank_in_summary(std::string_view output);

}  // namespace troupe::actors
