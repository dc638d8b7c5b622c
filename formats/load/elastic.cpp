#include <cmath>

#include "formats/load/key_reader.hpp"
#include "formats/load/part_readers.hpp"

namespace troupe::formats {
namespace {

using admission::max_gpus;

/// One end of a range of GPUs.
std::uint32_t read_count(map_reader& map, const value& v) {
  double count = 1;
  const auto place = inside(map.place(), "gpus");
  if (!read_number(map.found(), v, place, count, {1, max_gpus})) return 1;
  if (count != std::floor(count)) map.fail("gpus", "found {}, expected a whole number", count);
  return static_cast<std::uint32_t>(count);
}

/// `same`, `any` or [min, max].
void read_gpus(map_reader& map, elastic& e) {
  const auto* v = map.find("gpus");
  if (!v) return;
  if (v->what == value::kind::list && v->items.size() == 2) {
    e.min_gpus = read_count(map, v->items[0]);
    e.max_gpus = read_count(map, v->items[1]);
  } else if (v->what == value::kind::scalar && v->text == "same") {
    e.same_gpus = true;
  } else if (v->what != value::kind::scalar || v->text != "any") {
    map.fail("gpus", "found {}, expected same, any or [min, max]", describe(*v));
  }
}

/// `same`, `any` or a list of names.
void read_types(map_reader& map, elastic& e) {
  const auto* v = map.find("types");
  if (!v) return;
  if (v->what == value::kind::list && !v->items.empty()) {
    map.read("types", e.types);
  } else if (v->what == value::kind::scalar && v->text == "same") {
    e.same_types = true;
  } else if (v->what != value::kind::scalar || v->text != "any") {
    map.fail("types", "found {}, expected same, any or a list of GPU types", describe(*v));
  }
}

void read_layouts(map_reader& map, elastic& e) {
  static const std::vector<std::string> words{"data", "any"};
  std::string layouts;
  if (map.read_choice("layouts", layouts, words)) e.any_layout = layouts == "any";
}

/// The job's grace, given next to the rest of what a stop is.
void read_grace(map_reader& map, job_spec& job, bool given_outside) {
  if (!map.find("grace_s")) return;
  if (given_outside)
    return map.fail("grace_s", "found here and outside of elastic; give one of them");
  map.read("grace_s", job.program.grace_s, {0, admission::max_grace_s});
}

}  // namespace

void read_elastic(map_reader& map, job_spec& job) {
  const bool has_grace = map.find("grace_s") != nullptr;
  map.section("elastic", [&](map_reader& keys) {
    auto& e = job.program.elastic.emplace();
    read_gpus(keys, e);
    read_types(keys, e);
    read_layouts(keys, e);
    read_grace(keys, job, has_grace);
    keys.each("rates", [&](map_reader& rate) {
      read_keys(rate, admission::rate_keys(), e.rates.emplace_back());
      rate.finish();
    });
    read_keys(keys, admission::elastic_keys(), e);
  });
}

}  // namespace troupe::formats
