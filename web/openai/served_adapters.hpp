#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpu/inference/adapter.hpp"
#include "web/openai/generator.hpp"
#include "web/openai/served_model.hpp"
#include "web/openai/service.hpp"

namespace troupe::web {

/// The adapters of one model that a server offers, each by a name of its own.
class served_adapters {
 public:
  struct source {
    std::string name;
    std::filesystem::path folder;
  };
  struct entry {
    std::string name;
    gpu::adapter_ref adapter;
  };

  /// listed: read once. folder: each folder in it is an adapter by its name, but those whose
  /// names begin with a dot; empty: none. taken: names of models. Fails as gpu::open_adapter(), and
  /// for a name that is empty or there twice.
  static expected<served_adapters> read(const std::filesystem::path& base,
                                        const gpu::inference_model& m, std::vector<source> listed,
                                        std::filesystem::path folder,
                                        std::vector<std::string> taken);

  const std::vector<entry>& all() const { return all_; }
  /// Bytes of their values in memory.
  std::uint64_t bytes() const;

  /// Offers them beside `base`, by the same generator.
  void offer(service& s, const served_model& base, const std::shared_ptr<generator>& by) const;
  /// Reads the folder again: then offers those that are new or have other files, and withdraws
  /// those that are gone. Requests that have begun keep theirs. Changes nothing if one cannot be
  /// read, or if all have more than `max_bytes` bytes.
  expected<void> read_again(service& s, const served_model& base,
                            const std::shared_ptr<generator>& by, std::uint64_t max_bytes);

 private:
  expected<std::vector<entry>> read_all() const;

  std::filesystem::path base_, folder_;
  gpu::inference_model model_;
  std::vector<source> listed_;
  std::vector<std::string> taken_;
  std::vector<entry> all_;
};

}  // namespace troupe::web
