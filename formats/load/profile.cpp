#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "formats/load/load.hpp"
#include "formats/load/part_readers.hpp"
#include "formats/parse/reader.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

// A profile is written by `troupe profile` and read where a cluster or a job names it. Both
// directions are here, so that they have the same keys; the writer produces YAML by hand, one part
// of a stage a line, as a profile is also read by people.
constexpr std::uint32_t format_version = 1;
constexpr range seconds{0, 1e6}, megahertz{0, 1e6}, rate{0, 1e6}, above_0{0, 1e9, true};
constexpr std::uint64_t max_bytes = 1ull << 50;

constexpr std::array<std::pair<const char*, part_times profile_point::*>, 6> parts{{
    {"attention", &profile_point::attention},
    {"mlp", &profile_point::mlp},
    {"plain", &profile_point::plain},
    {"embedding", &profile_point::embedding},
    {"head", &profile_point::head},
    {"ends", &profile_point::ends},
}};

constexpr std::array<std::pair<const char*, part_times layers_point::*>, 3> layers_parts{{
    {"loss", &layers_point::loss},
    {"tied", &layers_point::tied},
    {"plain", &layers_point::plain},
}};

part_times read_times(map_reader& map) {
  part_times t;
  map.read("forward_s", t.forward_s, seconds, need::required);
  map.read("recompute_s", t.recompute_s, seconds, need::required);
  map.read("backward_s", t.backward_s, seconds, need::required);
  map.read("update_s", t.update_s, seconds, need::required);
  map.read("gradients_s", t.gradients_s, seconds, need::required);
  map.read("spread", t.spread, range{0, 1000});
  map.read_whole<std::uint64_t>("peak_bytes", t.peak_bytes, 0, max_bytes);
  return t;
}

part_times read_part(map_reader& point, const char* name) {
  part_times t;
  point.section(
      name, [&](map_reader& map) { t = read_times(map); }, need::required);
  return t;
}

profile_point read_point(map_reader& map) {
  profile_point p;
  map.read_whole<std::uint32_t>("sequence", p.sequence, 1, 100'000'000, need::required);
  map.read_whole<std::uint32_t>("rows", p.rows, 1, 1'000'000, need::required);
  map.read_whole<std::uint32_t>("tensor_parallel", p.tensor_parallel, 1, 1024);
  for (const auto& [name, times] : parts) p.*times = read_part(map, name);
  map.finish();
  return p;
}

/// Points are sorted by it.
std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> place_of(const profile_point& p) {
  return {p.tensor_parallel, p.sequence, p.rows};
}

// Sorted on reading: planners look up the nearest points, and a hand-edited file may have another
// order.
model_profile read_profiled_model(map_reader& map) {
  model_profile m;
  map.read("name", m.name, need::required);
  map.read_whole<std::uint32_t>("hidden", m.hidden, 1, 1'000'000, need::required);
  map.read_whole<std::uint32_t>("heads", m.heads, 1, 100'000, need::required);
  map.read_whole<std::uint32_t>("intermediate", m.intermediate, 1, 10'000'000, need::required);
  map.read_whole<std::uint32_t>("vocabulary", m.vocabulary, 1, 100'000'000, need::required);
  map.read("tied_head", m.tied_head);
  const auto add = [&](map_reader& point) {
    m.points.push_back(read_point(point));
    const auto& p = m.points.back();
    if (std::ranges::count(m.points, place_of(p), place_of) > 1)
      map.found().add(point.line(), point.place(),
                      "duplicate point: {} rows of {} tokens, tensor_parallel {}", p.rows,
                      p.sequence, p.tensor_parallel);
  };
  map.each("points", add, 1, need::required);
  map.finish();
  std::ranges::sort(m.points, {}, place_of);
  return m;
}

layers_point read_layers_point(map_reader& map) {
  layers_point p;
  map.read_whole<std::uint32_t>("rows", p.rows, 1, 1'000'000, need::required);
  const auto add = [&](map_reader& layer) {
    layer_times t;
    layer.read("name", t.name, need::required);
    t.times = read_times(layer);
    layer.finish();
    p.layers.push_back(std::move(t));
  };
  map.each("layers", add, 1, need::required);
  for (const auto& [name, times] : layers_parts) p.*times = read_part(map, name);
  map.finish();
  return p;
}

layers_profile read_layers(map_reader& map) {
  layers_profile m;
  map.read("name", m.name, need::required);
  map.read("key", m.key, need::required);
  map.read_whole<std::uint32_t>("threads", m.threads, 1, 1024);
  map.read("tensors_gbytes_s", m.tensors_gbytes_s, rate);
  const auto add = [&](map_reader& point) {
    auto p = read_layers_point(point);
    if (std::ranges::count(m.points, p.rows, &layers_point::rows) > 0)
      map.found().add(point.line(), point.place(), "duplicate point: {} rows", p.rows);
    if (!m.points.empty() && p.layers.size() != m.points.front().layers.size())
      map.found().add(point.line(), point.place(),
                      "found {} layers, expected {}, as in the first point", p.layers.size(),
                      m.points.front().layers.size());
    m.points.push_back(std::move(p));
  };
  map.each("points", add, 1, need::required);
  map.finish();
  std::ranges::sort(m.points, {}, &layers_point::rows);
  return m;
}

all_reduce_rate read_sums(map_reader& map) {
  all_reduce_rate r;
  map.read_whole<std::uint32_t>("devices", r.devices, 2, 100'000, need::required);
  map.read("gbytes_s", r.gbytes_s, above_0, need::required);
  map.read("small_us", r.small_us, above_0, need::required);
  map.finish();
  return r;
}

copy_rates read_copies(map_reader& map) {
  copy_rates c;
  map.read("to_device_gbytes_s", c.to_device_gbytes_s, rate);
  map.read("from_device_gbytes_s", c.from_device_gbytes_s, rate);
  map.read("on_device_gbytes_s", c.on_device_gbytes_s, rate);
  map.read("all_reduce", c.all_reduce);
  map.each("all_reduces", [&](map_reader& sums) {
    const auto r = read_sums(sums);
    if (std::ranges::count(c.all_reduces, r.devices, &all_reduce_rate::devices) > 0)
      map.found().add(sums.line(), sums.place(), "duplicate entry for {} devices", r.devices);
    c.all_reduces.push_back(r);
  });
  std::ranges::sort(c.all_reduces, {}, &all_reduce_rate::devices);
  return c;
}

void read_rest(map_reader& map, device_profile& p) {
  map.section("clocks", [&](map_reader& c) {
    c.read("core_mhz", p.clocks.core_mhz, megahertz);
    c.read("core_max_mhz", p.clocks.core_max_mhz, megahertz);
    c.read("memory_mhz", p.clocks.memory_mhz, megahertz);
    c.read("memory_max_mhz", p.clocks.memory_max_mhz, megahertz);
  });
  map.section("memory", [&](map_reader& m) {
    m.read_whole<std::uint64_t>("total_bytes", p.total_bytes, 0, max_bytes);
    m.read_whole<std::uint64_t>("free_bytes", p.free_bytes, 0, max_bytes);
  });
  map.section("copies", [&](map_reader& c) { p.copies = read_copies(c); });
}

/// Quotes any text for YAML.
// Names of devices and versions are the driver's words and may contain anything.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < ' ')
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

/// "{a: 1, b: 2}" without those that are 0.
std::string known(const std::vector<std::pair<const char*, double>>& all) {
  std::string out;
  for (const auto& [name, v] : all)
    if (v != 0) out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", name, v);
  return "{" + out + "}";
}

// Doubles in the shortest form that reads back as the same number.
std::string text_of(const part_times& t) {
  return fmt::format(
      "forward_s: {}, recompute_s: {}, backward_s: {}, update_s: {}, gradients_s: {}, "
      "spread: {}, peak_bytes: {}",
      t.forward_s, t.recompute_s, t.backward_s, t.update_s, t.gradients_s, t.spread, t.peak_bytes);
}

std::string text_of(const model_profile& m) {
  auto out = fmt::format(
      "  - name: {}\n    hidden: {}\n    heads: {}\n    intermediate: {}\n    vocabulary: {}\n"
      "    tied_head: {}\n    points:\n",
      quoted(m.name), m.hidden, m.heads, m.intermediate, m.vocabulary, m.tied_head);
  for (const auto& p : m.points) {
    out += fmt::format("      - sequence: {}\n        rows: {}\n", p.sequence, p.rows);
    if (p.tensor_parallel > 1)
      out += fmt::format("        tensor_parallel: {}\n", p.tensor_parallel);
    for (const auto& [name, times] : parts)
      out += fmt::format("        {}: {{{}}}\n", name, text_of(p.*times));
  }
  return out;
}

std::string text_of(const layers_profile& m) {
  auto out = fmt::format(
      "  - name: {}\n    key: {}\n    threads: {}\n    tensors_gbytes_s: {}\n    points:\n",
      quoted(m.name), quoted(m.key), m.threads, m.tensors_gbytes_s);
  for (const auto& p : m.points) {
    out += fmt::format("      - rows: {}\n        layers:\n", p.rows);
    for (const auto& layer : p.layers)
      out +=
          fmt::format("          - {{name: {}, {}}}\n", quoted(layer.name), text_of(layer.times));
    for (const auto& [name, times] : layers_parts)
      out += fmt::format("        {}: {{{}}}\n", name, text_of(p.*times));
  }
  return out;
}

device_profile read_profile(findings& found, const value& tree) {
  map_reader map{found, tree, ""};
  static const auto kinds = device_names(&device_facts::computes);
  device_profile p;
  std::uint32_t version = 0;
  map.read_whole<std::uint32_t>("profile", version, format_version, format_version, need::required);
  map.read("device", p.device, need::required);
  map.read_choice("kind", p.kind, kinds, need::required);
  map.read("driver", p.driver);
  map.read("runtime", p.runtime);
  map.read("libraries", p.libraries);
  map.read("date", p.date, need::required);
  map.read_whole<std::uint32_t>("busy", p.busy, 1, 100'000);
  read_rest(map, p);
  const auto add = [&](map_reader& m) {
    if (m.find("key"))
      p.programs.push_back(read_layers(m));
    else
      p.models.push_back(read_profiled_model(m));
  };
  map.each("models", add, 0, need::required);
  map.finish();
  return p;
}

}  // namespace

expected<device_profile> load_profile(const fs::path& file) {
  return read_file(file, read_profile);
}

std::string profile_text(const device_profile& p) {
  auto out = fmt::format(
      "# Written by `troupe profile`; docs/profiles.md explains the keys.\n"
      "profile: {}\ndevice: {}\nkind: {}\ndriver: {}\nruntime: {}\nlibraries: {}\ndate: {}\n"
      "busy: {}\n",
      format_version, quoted(p.device), p.kind, quoted(p.driver), quoted(p.runtime),
      quoted(p.libraries), quoted(p.date), p.busy);
  out += fmt::format("clocks: {}\n", known({{"core_mhz", p.clocks.core_mhz},
                                            {"core_max_mhz", p.clocks.core_max_mhz},
                                            {"memory_mhz", p.clocks.memory_mhz},
                                            {"memory_max_mhz", p.clocks.memory_max_mhz}}));
  out += fmt::format("memory: {{total_bytes: {}, free_bytes: {}}}\n", p.total_bytes, p.free_bytes);
  const auto& c = p.copies;
  out += fmt::format(
      "copies:\n  to_device_gbytes_s: {}\n  from_device_gbytes_s: {}\n  on_device_gbytes_s: {}\n"
      "  all_reduce: {}\n",
      c.to_device_gbytes_s, c.from_device_gbytes_s, c.on_device_gbytes_s, quoted(c.all_reduce));
  out += c.all_reduces.empty() ? "  all_reduces: []\n" : "  all_reduces:\n";
  for (const auto& r : c.all_reduces)
    out += fmt::format("    - {{devices: {}, gbytes_s: {}, small_us: {}}}\n", r.devices, r.gbytes_s,
                       r.small_us);
  out += p.models.empty() && p.programs.empty() ? "models: []\n" : "models:\n";
  for (const auto& m : p.models) out += text_of(m);
  for (const auto& m : p.programs) out += text_of(m);
  return out;
}

// A profile that does not load is an error of the file that names it, too: estimates without it
// would differ silently.
void read_named_profile(map_reader& map, const fs::path& directory,
                        std::optional<device_profile>& out) {
  std::string named;
  if (!map.read("profile", named)) return;
  const auto file = find_file(named, directory);
  if (file.empty())
    return map.fail("profile",
                    "no file '{}', neither next to this file nor in the "
                    "current directory; troupe profile writes one",
                    shown(named));
  auto loaded = load_profile(file);
  if (!loaded) return map.found().add(loaded.error());
  out = std::move(*loaded);
}

}  // namespace troupe::formats
