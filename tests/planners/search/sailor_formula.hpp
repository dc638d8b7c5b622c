#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/files.hpp"

// Sailor's formula (SOSP'25), written from one text: section 10 of the plan of the plan space. What
// Sailor's own simulator says of a plan, from its profiles and link curves, for tests alone.

namespace troupe::harness {

using test::shared_data;

/// GPUs of a stage in one pipeline.
struct sailor_seat {
  std::uint32_t kind = 0;    // 0: A100-40GB, 1: V100-16GB
  std::uint32_t tensor = 1;  // 1, 2 or 4
  std::uint32_t zone = 0;    // index into sailor_formula::zones

  auto operator<=>(const sailor_seat&) const = default;
};

/// Pipelines one after the other, alike.
struct sailor_group {
  std::uint32_t pipelines = 1;
  std::uint32_t microbatches = 0;    // of each; 0: the batch over all pipelines, rounded up
  std::vector<sailor_seat> seats{};  // by stage
};

struct sailor_plan {
  std::uint32_t rows = 1;
  std::vector<std::uint32_t> firsts;  // by stage: its first layer of 26
  std::vector<sailor_group> groups;
};

struct sailor_value {
  double seconds = 0, dollars = 0;  // of an iteration
  bool fits = true;
};

/// OPT-350M, a batch of 1,024 samples of 2,048 tokens, single precision, nodes of four.
class sailor_formula {
 public:
  static constexpr std::uint32_t layers = 26, batch = 1024;
  static const std::vector<std::string> zones;

  explicit sailor_formula(const std::string& folder);

  sailor_value value(const sailor_plan& p) const;

  /// A stage of a pipeline by itself: its own work on a micro-batch, and with its sends.
  struct neighbours {
    const sailor_seat* before = nullptr;  // null: it is the first
    const sailor_seat* after = nullptr;   // null: it is the last
    std::uint32_t stages = 1;             // of the pipeline
  };
  double work_s(std::uint32_t rows, std::uint32_t first, std::uint32_t end,
                const sailor_seat& at) const;
  double sends_s(std::uint32_t rows, std::uint32_t first, std::uint32_t end, const sailor_seat& at,
                 const neighbours& n) const;
  double update_s(std::uint32_t rows, std::uint32_t first, const sailor_seat& at) const;
  bool fits(std::uint32_t rows, std::uint32_t first, std::uint32_t end, const sailor_seat& at,
            std::uint32_t behind) const;
  /// The sum of a stage's gradients over groups of pipelines, each with its seat.
  struct peers {
    std::uint32_t count = 1;
    sailor_seat seat;
  };
  double sum_s(std::uint32_t first, std::uint32_t end, const std::vector<peers>& all) const;
  /// Seconds that a pair of neighbours in that sum takes, if no stage has fewer GPUs than `tensor`.
  double pair_s(std::uint32_t first, std::uint32_t end, std::uint32_t tensor, sailor_seat from,
                sailor_seat to, std::uint32_t pipelines) const;
  /// $ of the traffic of that sum.
  double sum_dollars(std::uint32_t first, std::uint32_t end, const std::vector<peers>& all) const;
  static double dollars_per_hour(std::uint32_t kind) { return kind == 0 ? 3.74 : 2.80; }
  double dollars_per_byte(std::uint32_t from, std::uint32_t to) const {
    return egress_[from * zones.size() + to];
  }

 private:
  struct part {
    double parameters = 0, kept = 0, output = 0;
  };
  struct times {
    double work_s = 0, update_s = 0;
  };
  static std::uint32_t degree(std::uint32_t tensor) { return tensor == 1 ? 0 : tensor / 2; }
  static std::uint32_t kind_of_layer(std::uint32_t layer) {
    return layer == 0 ? 0 : layer + 1 == layers ? 2 : 1;
  }
  const times& times_of(std::uint32_t rows, std::uint32_t layer, const sailor_seat& at) const;
  double output_bytes(std::uint32_t rows, std::uint32_t layer) const;
  double stage_bytes(std::uint32_t first, std::uint32_t end, std::uint32_t tensor) const;
  double send_s(double bytes, const sailor_seat& from, const sailor_seat& to) const;
  void read_times(const std::string& file, std::uint32_t kind);
  void read_parts(const std::string& file);
  void read_links(const std::string& file);
  void read_egress(const std::string& file);

  // Indices: kind, degree (of 1, 2, 4), log2 of rows, kind of layer.
  std::array<std::array<std::array<std::array<times, 3>, 8>, 3>, 2> times_{};
  std::array<std::array<part, 3>, 3> parts_{};  // by degree and kind of layer
  std::vector<std::array<double, 3>> curves_;   // by end * ends + end: zone, kind, degree
  std::vector<double> egress_;                  // $ a byte
};

}  // namespace troupe::harness
