#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::cli {

/// A task on a GPU or link.
struct picture_span {
  enum class kind : std::uint8_t { forward, recompute, backward, transfer, prefill, other };
  kind what = kind::other;
  std::string name;  // as the timeline has it: "forward 3"
  std::uint32_t pipeline = 0, microbatch = 0;
  double begin = 0, end = 0;  // in picture_of_iteration's unit
};

struct picture_row {
  std::string name;   // "stage 2, dc1" or "dc1 to dc2"; stages count from 0
  std::string group;  // rows of a group follow each other: "pipeline 1", "WAN"
  bool link = false;
  std::vector<picture_span> spans;
};

/// One iteration under one schedule.
struct picture_of_iteration {
  std::string job, schedule, device;
  std::string unit = "s";         // or slot
  std::vector<picture_row> rows;  // GPUs by pipeline and stage, then links

  double length() const;       // until the last GPU has ended
  double utilization() const;  // utilization: forward, recompute and backward
};

/// Reads a training's timeline file. Errors begin with the file's name.
expected<picture_of_iteration> load_timeline(const std::string& file);

/// A self-contained HTML page like Figure 6 of the ATLAS paper: iterations side by side (or one
/// below the other in narrow windows) with the same time scale. No scripts or external resources.
/// Only the first max_picture_rows GPUs are drawn, and the page says so.
std::string iteration_picture(const std::vector<picture_of_iteration>& iterations);

/// The page of these timelines, as a file.
expected<void> draw_iterations(const std::vector<std::string>& timelines, const std::string& page);

inline constexpr std::size_t max_picture_rows = 240;

}  // namespace troupe::cli
