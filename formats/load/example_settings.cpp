#include "formats/load/example_settings.hpp"

#include <algorithm>

#include "formats/parse/reader.hpp"
#include "messages/admission/limits.hpp"

namespace troupe::formats {

expected<example_settings> load_example_settings(const std::filesystem::path& job_file) {
  const auto tree = load_value(job_file);
  if (!tree) return refuse(tree.error());
  findings found{job_file.string()};
  map_reader job{found, *tree, ""};
  example_settings s;
  const auto* keys = job.find("train", need::required);
  if (!keys) return found.result();
  map_reader train{found, *keys, "train"};
  train.read_whole<std::uint32_t>("sequence", s.sequence, 2, admission::max_sequence);
  train.read("packing", s.packing);
  const auto choice = [&](const char* key, auto& out, const std::vector<std::string>& names,
                          auto first) {
    std::string name;
    if (!train.read_choice(key, name, names)) return;
    using kind = std::decay_t<decltype(out)>;
    out = static_cast<kind>(static_cast<int>(first) +
                            (std::ranges::find(names, name) - names.begin()));
  };
  choice("train_on", s.train_on, {"answers", "all"}, example_settings::targets::answers);
  choice("too_long", s.too_long, {"refuse", "drop", "cut"}, example_settings::excess::refused);
  train.read("date", s.date);
  return found.result(s);
}

}  // namespace troupe::formats
