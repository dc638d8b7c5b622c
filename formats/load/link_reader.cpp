#include "formats/load/link_reader.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "formats/load/load.hpp"

namespace troupe::formats {

namespace {

constexpr range any_rate{0, max_link_gbps, true};

/// One row of numbers: `min` to `max` of them.
std::vector<double> read_row(findings& found, const value& v, const std::string& place,
                             std::size_t min, std::size_t max, std::string_view columns) {
  if (v.what != value::kind::list || v.items.size() < min || v.items.size() > max) {
    found.add(v.line, place, "found {}, expected {}", describe(v), columns);
    return {};
  }
  std::vector<double> row;
  for (const auto& item : v.items) {
    double x = 0;
    if (!read_number(found, item, place, x, {0, 1e18})) return {};
    row.push_back(x);
  }
  return row;
}

bool is_rate(findings& found, const value& v, const std::string& place, double gbps) {
  if (gbps > 0 && gbps <= max_link_gbps) return true;
  found.add(v.line, place, "found {:g} Gbit/s, expected more than 0 and at most {:g}", gbps,
            max_link_gbps);
  return false;
}

/// Rows whose first numbers are whole, increase, and lie in [low, high].
template <class Row>
void read_rows(map_reader& map, std::string_view key, double low, double high,
               std::string_view first, Row row) {
  auto& found = map.found();
  const auto* all = map.list(key, 1);
  if (all == nullptr) return;
  if (all->items.size() > max_link_rates)
    return map.fail(key, "found {} points, expected at most {}", all->items.size(), max_link_rates);
  double before = 0;
  for (std::size_t i = 0; i < all->items.size() && found.good(); ++i) {
    const auto& item = all->items[i];
    const auto place = inside(inside(map.place(), key), i);
    const double x = row(item, place);
    if (!found.good()) return;
    if (x != std::floor(x) || x < low || x > high)
      return found.add(item.line, place,
                       "found {:.17g} {}, expected a whole number from {:.17g} to {:.17g}", x,
                       first, low, high);
    if (i > 0 && x <= before)
      return found.add(item.line, place,
                       "found {:.17g} {} after {:.17g}, expected increasing numbers", x, first,
                       before);
    before = x;
  }
}

void read_curve(map_reader& map, std::string_view key, std::optional<std::vector<link_rate>>& out) {
  std::vector<link_rate> points;
  read_rows(map, key, 1, static_cast<double>(max_rate_bytes), "bytes",
            [&](const value& v, const std::string& place) {
              const auto row = read_row(map.found(), v, place, 2, 2, "[bytes, gbps]");
              if (row.empty() || !is_rate(map.found(), v, place, row[1])) return 0.0;
              points.push_back({row[0] < 1e18 ? static_cast<std::uint64_t>(row[0]) : 0, row[1]});
              return row[0];
            });
  if (!points.empty() && map.found().good()) out = std::move(points);
}

void read_group_rates(map_reader& map, link& l) {
  std::vector<group_rate> rates;
  read_rows(
      map, "group_rates", 2, max_group_gpus, "GPUs", [&](const value& v, const std::string& place) {
        const auto row =
            read_row(map.found(), v, place, 2, 3, "[gpus, gbps] or [gpus, gbps, latency_us]");
        if (row.empty() || !is_rate(map.found(), v, place, row[1])) return 0.0;
        const double latency_us = row.size() > 2 ? row[2] : l.latency_us;
        if (latency_us > 1e6) {
          map.found().add(v.line, place, "found a latency of {:g} us, expected at most 1e6",
                          latency_us);
          return 0.0;
        }
        rates.push_back({static_cast<std::uint32_t>(std::min(row[0], 1e9)), row[1], latency_us});
        return row[0];
      });
  if (!rates.empty() && map.found().good()) l.group_rates = std::move(rates);
}

}  // namespace

void read_rates(map_reader& map, std::optional<std::vector<link_rate>>& rates,
                std::optional<std::vector<link_rate>>& flow_rates) {
  read_curve(map, "rates", rates);
  read_curve(map, "flow_rates", flow_rates);
  double flow_gbps = 0;
  if (!map.read("flow_gbps", flow_gbps, any_rate)) return;
  if (flow_rates)
    return map.fail("flow_gbps", "found flow_gbps and flow_rates, expected one of the two");
  flow_rates = {{1, flow_gbps}};
}

link read_link(map_reader& map, std::string_view key, bool groups) {
  const auto* v = map.find(key, need::required);
  if (!v) return {};
  if (v->what == value::kind::map) {
    link l;
    map.section(key, [&](map_reader& numbers) {
      numbers.read("latency_us", l.latency_us, {0, 1e9}, need::required);
      read_rates(numbers, l.rates, l.flow_rates);
      if (groups) read_group_rates(numbers, l);
      // Messages that are no tensors have one rate, whatever their size.
      if (!numbers.read("gbps", l.gbps, any_rate, l.rates ? need::optional : need::required))
        l.gbps = l.max_gbps();
    });
    return l;
  }
  std::string name;
  if (!map.read(key, name)) return {};
  for (const auto& l : known_links())
    if (l.name == name) return l;
  map.fail(key, "unknown link '{}'{}", shown(name), hint(name, names_of(known_links())));
  return {};
}

}  // namespace troupe::formats
