#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// How the examples of a file become rows of tokens that a model learns from.
struct example_settings {
  enum class targets : std::uint8_t {
    usual,    // answers, and all tokens of plain texts
    answers,  // of the assistant, or completions
    all,      // prompts, too
  };
  enum class excess : std::uint8_t { refused, dropped, cut };

  std::uint32_t sequence =
      0;                 // tokens of a row at most; 0: 2,048, or the model's positions if fewer
  bool packing = false;  // several examples in a row
  targets train_on = targets::usual;
  excess too_long = excess::refused;  // examples of more tokens than that
  std::string date;                   // that templates write, as 2026-11-29; empty: today
};

}  // namespace troupe
