#include "gpu/model/layer_export.hpp"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/model/safetensors.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

constexpr const char* about_layer = "troupe";  // metadata: a JSON object
constexpr std::string_view buffer_prefix = "buffer/";

using texts = std::map<std::string, std::string>;

/// The metadata of a layer's file on its tensors, which are named as nn.Sequential has them.
struct layer_names {
  std::uint64_t layer = 0;
  texts public_names;  // of all names
  texts tied;          // another name of a tensor, and the one by which it is saved
  std::uint64_t frozen = 0;
};

expected<layer_names> names_in(const safetensors& file) {
  const auto text = file.metadata(about_layer);
  if (!text)
    return refuse(reason::kind::malformed, "{}: found no metadata '{}', expected a layer's file",
                  file.file().string(), about_layer);
  const auto about = parse_json(*text, file.file());
  if (!about) return refuse(about.error());
  layer_names names;
  try {
    names.layer = about->at("layer").get<std::uint64_t>();
    names.public_names = about->at("names").get<texts>();
    names.tied = about->at("tied").get<texts>();
    names.frozen = about->at("frozen").size();
  } catch (const nlohmann::json::exception&) {
    return refuse(reason::kind::malformed,
                  "{}: found metadata '{}' without layer, names, tied and frozen",
                  file.file().string(), about_layer);
  }
  return names;
}

std::uint64_t values_of(const stored_tensor& t) {
  std::uint64_t n = 1;
  for (const auto size : t.shape) n *= size;
  return n;
}

/// The tensors of all layers under their public names.
class public_tensors {
 public:
  expected<void> add(const safetensors& file) {
    const auto names = names_in(file);
    if (!names) return refuse(names.error());
    if (!layers_.insert(names->layer).second)
      return refuse(reason::kind::malformed,
                    "{}: found another file of layer {} in its folder, expected one, or an index",
                    file.file().string(), names->layer);
    done_.frozen += names->frozen;
    std::map<std::string_view, const stored_tensor*> saved;
    for (const auto& t : file.all()) {
      std::string_view name = t.name;
      if (name.starts_with("optim/") || name.starts_with("frozen/")) continue;
      const bool is_buffer = name.starts_with(buffer_prefix);
      if (is_buffer) name.remove_prefix(buffer_prefix.size());
      if (!is_buffer) done_.parameters += values_of(t);
      saved[name] = &t;
      if (auto ok = add(file, t, *names, std::string{name}); !ok) return ok;
    }
    for (const auto& [other, one] : names->tied)
      if (const auto* t = find_in(saved, std::string_view{one}))
        if (auto ok = add(file, **t, *names, other); !ok) return ok;
    return {};
  }

  std::vector<tensor_to_copy> take() {
    std::vector<tensor_to_copy> all;
    for (auto& [name, t] : tensors_) all.push_back(std::move(t));
    return all;
  }

  expected<exported_layers> write(const std::filesystem::path& to, std::uint64_t iteration) {
    auto all = take();
    done_.tensors = all.size();
    const auto ok = copy_safetensors(to, std::move(all),
                                     {{"format", "pt"}, {"iteration", std::to_string(iteration)}});
    if (!ok) return refuse(ok.error());
    return done_;
  }

 private:
  // A program may give both names of a tied parameter the same public one.
  expected<void> add(const safetensors& file, const stored_tensor& t, const layer_names& names,
                     const std::string& name) {
    const auto* found = find_in(names.public_names, name);
    const auto& public_name = found ? *found : name;
    const auto& known =
        tensors_.try_emplace(public_name, tensor_to_copy{public_name, &file, &t}).first->second;
    if (known.tensor == &t) return {};
    return refuse(reason::kind::invalid,
                  "{}: '{}' has the public name '{}', expected one that no other tensor has",
                  file.file().string(), shown(name), shown(public_name));
  }

  std::map<std::string, tensor_to_copy> tensors_;
  std::set<std::uint64_t> layers_;
  exported_layers done_;
};

}  // namespace

bool is_of_program(const checkpoint& c) {
  return c.files().front().metadata(about_layer).has_value();
}

expected<std::vector<tensor_to_copy>> layers_to_copy(const checkpoint& from) {
  public_tensors all;
  for (const auto& layer : from.files())
    if (auto ok = all.add(layer); !ok) return refuse(ok.error());
  return all.take();
}

expected<exported_layers> export_layers(const checkpoint& from, const std::filesystem::path& file) {
  public_tensors all;
  for (const auto& layer : from.files())
    if (auto ok = all.add(layer); !ok) return refuse(ok.error());
  return all.write(file, from.iteration());
}

}  // namespace troupe::gpu
