#pragma once

namespace troupe {

/// Ends the process with the sentence on the standard error output: whatever came next would be
/// computed, and written down, from data that is wrong.
[[noreturn]] void end_with_broken_invariant(const char* sentence, const char* condition) noexcept;

/// Are facts checked, too, that take longer to check than to keep? In the presets `checked` and
/// `debug`, and in those of sanitizers.
bool checks_slow_invariants();

}  // namespace troupe

/// A fact that the surrounding code guarantees whatever its input, and on which other code relies;
/// the sentence says it. Checked in every build, so the condition is cheap beside what is done
/// there. Input that is wrong is no broken invariant: it is refused with a `reason`.
#define TROUPE_INVARIANT(condition, sentence) \
  ((condition) ? static_cast<void>(0)         \
               : ::troupe::end_with_broken_invariant("" sentence, #condition))
