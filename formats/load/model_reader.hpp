#pragma once

#include <filesystem>

#include "formats/parse/reader.hpp"
#include "messages/domain/model.hpp"

namespace troupe::formats {

/// A model from a map in any file: its own keys, or {huggingface: path, ...}. Paths are relative to
/// `directory` or to the current one.
model read_model(findings& found, const value& v, const std::string& place,
                 const std::filesystem::path& directory);

/// A model from the tree of a Hugging Face config.json.
model read_huggingface(findings& found, const value& v);

/// Consistency checks of a model's sizes; `line` and `place` are for the error.
void check_model(findings& found, const model& m, int line, const std::string& place);

/// Is it "organization/model" as on the Hugging Face hub, rather than a path? The error that
/// explains it.
bool is_hub_id(const std::string& name);
std::string hub_id_advice(const std::string& name);

/// Finds `name` in the directory or in the current one; empty: in neither.
std::filesystem::path find_file(const std::filesystem::path& name,
                                const std::filesystem::path& directory);

}  // namespace troupe::formats
