#pragma once

#include <filesystem>

#include "formats/parse/reader.hpp"
#include "messages/model.hpp"

namespace troupe::formats {

/// A model from a map in any file: its own keys, or {huggingface: path, ...}. Paths are tried from
/// `directory`, then from the current one.
model read_model(findings& found, const value& v, const std::string& place,
                 const std::filesystem::path& directory);

/// A model from the tree of a Hugging Face config.json.
model read_huggingface(findings& found, const value& v);

/// What must hold between a model's numbers; `line` and `place` are for the complaint.
void check_model(findings& found, const model& m, int line, const std::string& place);

/// "organisation/model", as the Hugging Face hub has it, and no path of a file; and what to do
/// then.
bool is_hub_id(const std::string& name);
std::string hub_id_advice(const std::string& name);

/// `name` from the directory, else from the current one; empty if it is in neither.
std::filesystem::path find_file(const std::filesystem::path& name,
                                const std::filesystem::path& directory);

}  // namespace troupe::formats
