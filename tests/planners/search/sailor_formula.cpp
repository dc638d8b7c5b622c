#include "planners/search/sailor_formula.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

#include "formats/load/load.hpp"
#include "formats/parse/csv.hpp"

namespace troupe::harness {

const std::vector<std::string> sailor_formula::zones = {
    "us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f", "us-west1-b"};

namespace {

const std::vector<std::string> gpu_names = {"A100-40", "V100-16"};

template <class Row>
void each_row(const std::string& file, const Row& row) {
  std::ifstream in{file};
  std::ostringstream all;
  all << in.rdbuf();
  const auto text = all.str();
  formats::findings found{file};
  formats::csv_reader csv{found, text};
  while (csv.next()) row(csv);
  REQUIRE(found.good());
}

/// -1: not one of them.
int index_in(const std::vector<std::string>& names, std::string_view name) {
  const auto at = std::ranges::find(names, name);
  return at == names.end() ? -1 : static_cast<int>(at - names.begin());
}

std::uint32_t whole(formats::csv_reader& csv, std::string_view column) {
  return static_cast<std::uint32_t>(csv.whole(column, {0, 1e9}));
}

}  // namespace

sailor_formula::sailor_formula(const std::string& folder)
    : curves_(zones.size() * zones.size() * 36), egress_(zones.size() * zones.size()) {
  read_times(folder + "/opt-350.A100-40.yaml", 0);
  read_times(folder + "/opt-350.V100-16.yaml", 1);
  read_parts(folder + "/parts.csv");
  read_links(folder + "/links.csv");
  read_egress(folder + "/egress.csv");
}

void sailor_formula::read_times(const std::string& file, std::uint32_t kind) {
  const auto profile = formats::load_profile(file);
  REQUIRE(profile);
  for (const auto& p : profile->models.at(0).points) {
    if (p.tensor_parallel > 4) continue;
    auto& t = times_[kind][degree(p.tensor_parallel)][std::bit_width(p.rows) - 1U];
    const auto work = [](const part_times& x) { return x.forward_s + x.backward_s; };
    t[0] = {work(p.embedding), p.embedding.update_s};
    t[1] = {work(p.attention) + work(p.mlp), p.plain.update_s};
    t[2] = {work(p.head), p.head.update_s};
  }
}

void sailor_formula::read_parts(const std::string& file) {
  each_row(file, [&](formats::csv_reader& csv) {
    const auto t = whole(csv, "tensor_parallel");
    if (csv.field("model") != "opt-350" || t > 4) return;
    auto& p = parts_[degree(t)][kind_of_layer(whole(csv, "last"))];
    const admission::range any{0, 1e12};
    p = {csv.number("parameters", any), csv.number("kept_numbers", any), p.output};
    if (t != 1) return;
    for (auto& d : parts_)
      d[kind_of_layer(whole(csv, "last"))].output = csv.number("output_numbers", any);
  });
}

void sailor_formula::read_links(const std::string& file) {
  each_row(file, [&](formats::csv_reader& csv) {
    const int from = index_in(zones, csv.field("from_zone")),
              to = index_in(zones, csv.field("to_zone")),
              a = index_in(gpu_names, csv.field("from_gpu")),
              b = index_in(gpu_names, csv.field("to_gpu"));
    if (from < 0 || to < 0 || a < 0 || b < 0) return;
    const auto n = whole(csv, "from_gpus"), k = whole(csv, "to_gpus");
    if (n > 4 || k > 4) return;
    const auto end = [](int zone, int kind, std::uint32_t t) {
      return (static_cast<std::size_t>(zone) * 2 + static_cast<std::size_t>(kind)) * 3 + degree(t);
    };
    const admission::range any{-1e3, 1e3};
    curves_[end(from, a, n) * zones.size() * 6 + end(to, b, k)] = {
        csv.number("a", any), csv.number("b", any), csv.number("c", any)};
  });
}

void sailor_formula::read_egress(const std::string& file) {
  each_row(file, [&](formats::csv_reader& csv) {
    const auto from = index_in(zones, csv.field("from")), to = index_in(zones, csv.field("to"));
    egress_[static_cast<std::size_t>(from) * zones.size() + static_cast<std::size_t>(to)] =
        csv.number("usd_per_gb", {0, 1}) / 1e9;
  });
}

const sailor_formula::times& sailor_formula::times_of(std::uint32_t rows, std::uint32_t layer,
                                                      const sailor_seat& at) const {
  return times_[at.kind][degree(at.tensor)][std::bit_width(rows) - 1U][kind_of_layer(layer)];
}

double sailor_formula::output_bytes(std::uint32_t rows, std::uint32_t layer) const {
  return parts_[0][kind_of_layer(layer)].output * 4 * rows;
}

double sailor_formula::stage_bytes(std::uint32_t first, std::uint32_t end,
                                   std::uint32_t tensor) const {
  double parameters = 0;
  for (auto l = first; l < end; ++l) parameters += parts_[0][kind_of_layer(l)].parameters;
  return 4 * parameters / tensor;
}

double sailor_formula::send_s(double bytes, const sailor_seat& from, const sailor_seat& to) const {
  const auto end = [](const sailor_seat& s) {
    return (s.zone * 2 + s.kind) * 3 + degree(s.tensor);
  };
  const auto& [a, b, c] = curves_[end(from) * zones.size() * 6 + end(to)];
  const double q = std::log2(bytes / 1e6);
  // Outside of the sizes that were measured the polynomials fall below 0.
  return bytes / (std::max(0.01, a * q * q + b * q + c) * 1e9);
}

double sailor_formula::work_s(std::uint32_t rows, std::uint32_t first, std::uint32_t end,
                              const sailor_seat& at) const {
  double s = 0;
  for (auto l = first; l < end; ++l) s += times_of(rows, l, at).work_s;
  // Its profile has no times of so many rows: the GPU cannot hold them.
  return s > 0 ? s : std::numeric_limits<double>::infinity();
}

double sailor_formula::update_s(std::uint32_t rows, std::uint32_t first,
                                const sailor_seat& at) const {
  return times_of(rows, first, at).update_s;
}

double sailor_formula::sends_s(std::uint32_t rows, std::uint32_t first, std::uint32_t end,
                               const sailor_seat& at, const neighbours& n) const {
  const double act = n.after ? send_s(output_bytes(rows, end - 1), at, *n.after) : 0;
  const double grad = n.before ? send_s(output_bytes(rows, first), at, *n.before) : 0;
  if (!n.before) return n.stages <= 3 ? act : 2 * act;
  return n.after ? act + grad : 2 * grad;
}

bool sailor_formula::fits(std::uint32_t rows, std::uint32_t first, std::uint32_t end,
                          const sailor_seat& at, std::uint32_t behind) const {
  double parameters = 0, kept = 0;
  for (auto l = first; l < end; ++l) {
    parameters += parts_[degree(at.tensor)][kind_of_layer(l)].parameters;
    kept += parts_[degree(at.tensor)][kind_of_layer(l)].kept;
  }
  const double bytes =
      24 * parameters + kept * rows * 4 * (behind + 1) + (at.tensor == 1 ? 2e9 : 3e9);
  return bytes <= (at.kind == 0 ? 40.0 : 16.0) * (1 << 30);
}

double sailor_formula::pair_s(std::uint32_t first, std::uint32_t end, std::uint32_t tensor,
                              sailor_seat from, sailor_seat to, std::uint32_t pipelines) const {
  if (pipelines == 1) return 0;
  from.tensor = to.tensor = 1;
  const double bytes = stage_bytes(first, end, tensor), bucket = 5e8;
  const auto of = [&](double n) { return 2 * (pipelines - 1) * send_s(n / pipelines, from, to); };
  const double whole = std::floor(bytes / bucket), rest = bytes - whole * bucket;
  return (whole > 0 ? whole * of(bucket) : 0) + (rest > 0 ? of(rest) : 0);
}

double sailor_formula::sum_s(std::uint32_t first, std::uint32_t end,
                             const std::vector<peers>& all) const {
  std::uint32_t pipelines = 0, tensor = 4;
  for (const auto& p : all) pipelines += p.count, tensor = std::min(tensor, p.seat.tensor);
  double slowest = 0;
  const auto pair = [&](const sailor_seat& a, const sailor_seat& b) {
    slowest = std::max(slowest, pair_s(first, end, tensor, a, b, pipelines));
  };
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (all[k].count > 1) pair(all[k].seat, all[k].seat);
    if (k + 1 < all.size()) pair(all[k].seat, all[k + 1].seat);
  }
  return slowest;
}

double sailor_formula::sum_dollars(std::uint32_t first, std::uint32_t end,
                                   const std::vector<peers>& all) const {
  std::uint32_t pipelines = 0;
  for (const auto& p : all) pipelines += p.count;
  const double each = stage_bytes(first, end, 1) / pipelines * 2 * (pipelines - 1);
  double dollars = 0;
  for (std::size_t k = 0; k < all.size(); ++k)
    dollars += each * dollars_per_byte(all[k].seat.zone, all[(k + 1) % all.size()].seat.zone);
  return dollars;
}

sailor_value sailor_formula::value(const sailor_plan& p) const {
  const auto stages = static_cast<std::uint32_t>(p.firsts.size());
  std::uint32_t pipelines = 0;
  for (const auto& g : p.groups) pipelines += g.pipelines;
  const auto share = (batch + p.rows * pipelines - 1) / (p.rows * pipelines);
  const bool alike = p.groups.front().microbatches == 0;
  sailor_value v;
  std::vector<double> c(stages), x(stages);
  double update = 0, sum = 0, longest = 0, hour = 0, traffic = 0;
  const auto ends_s = [&](std::uint32_t m) {
    double all = 0, slowest = 0;
    for (std::uint32_t i = 0; i < stages; ++i)
      all += c[i] + x[i], slowest = std::max(slowest, c[i] + x[i]);
    return (m - 1) * slowest + all + update;
  };
  for (const auto& g : p.groups) {
    if (!alike) std::ranges::fill(c, 0.0), std::ranges::fill(x, 0.0), update = 0;
    const auto m = alike ? share : g.microbatches;
    for (std::uint32_t i = 0; i < stages; ++i) {
      const auto first = p.firsts[i], end = i + 1 < stages ? p.firsts[i + 1] : layers;
      const auto& at = g.seats[i];
      const neighbours n{i > 0 ? &g.seats[i - 1] : nullptr,
                         i + 1 < stages ? &g.seats[i + 1] : nullptr, stages};
      c[i] = std::max(c[i], work_s(p.rows, first, end, at));
      x[i] = std::max(x[i], sends_s(p.rows, first, end, at, n));
      update = std::max(update, update_s(p.rows, first, at));
      v.fits = v.fits && fits(p.rows, first, end, at, stages - 1 - i);
      hour += g.pipelines * at.tensor * dollars_per_hour(at.kind);
      if (n.after)
        traffic += g.pipelines * 2.0 * m * output_bytes(p.rows, end - 1) *
                   dollars_per_byte(at.zone, n.after->zone);
    }
    longest = std::max(longest, ends_s(m));
  }
  for (std::uint32_t i = 0; i < stages; ++i) {
    const auto first = p.firsts[i], end = i + 1 < stages ? p.firsts[i + 1] : layers;
    std::vector<peers> all;
    for (const auto& g : p.groups) all.push_back({g.pipelines, g.seats[i]});
    sum = std::max(sum, sum_s(first, end, all));
    traffic += sum_dollars(first, end, all);
  }
  // Groups that are alike share their stages' slowest times: only the last of them has all.
  v.seconds = (alike ? ends_s(share) : longest) + sum;
  v.dollars = v.seconds * hour / 3600 + traffic;
  return v;
}

}  // namespace troupe::harness
