#pragma once

#include <filesystem>
#include <string>

// Folders and files that are no models in Hugging Face's form, but are often taken for one.

namespace troupe::gpu {

/// A sentence that says what it is and what is expected; empty: the path may be a model's folder,
/// or is one that does not exist. Names of the Hugging Face Hub are no paths.
std::string no_model_folder(const std::filesystem::path& path);

/// The files with weights in other forms in a folder without *.safetensors, and what would do;
/// empty: it has none that is known.
std::string other_weights(const std::filesystem::path& folder);

}  // namespace troupe::gpu
