#pragma once

#include <map>
#include <optional>
#include <string>

#include "gpu/examples/example_file.hpp"
#include "messages/admission/tuning.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/layer_file.hpp"

namespace troupe::gpu {

/// The package's program that trains a model folder, in its folder of programs.
inline constexpr const char* tuning_program = "fine_tune.py";

/// The keys of a training of a model folder, which are the arguments of a program without a file.
/// Nothing: it is another program. Fails for arguments that no job file has.
expected<std::optional<tuning>> tuning_of(const layer_file& p);
/// Puts the counts of a tuning, its date and sequence into the arguments.
void add_counts(layer_file& p, const tuning& u);

/// The rows of a training of a model folder, equal on every node that reads the same files.
struct tuning_rows {
  example_model model;
  example_set trained;
  std::optional<example_set> held_out;
};

/// Reads data and held-out data. Without a file of its own a share of the lines is held out, which
/// the training's seed chooses: no line is in both. Fails as read_examples() does, and if no line
/// would be left on one side.
expected<tuning_rows> read_tuning_rows(const tuning& u, std::uint64_t seed);

/// Where write_tuning_rows() puts them.
struct row_files {
  std::string trained, held_out;  // no held_out: there is none
};
expected<row_files> write_tuning_rows(const std::string& folder, const tuning_rows& r);

/// Fails, with both numbers, if the rows are not as many as when the job was read.
expected<void> check_counts(const tuning_rows& r, const tuning& u);

/// The arguments of the package's program for a training of `updates` updates: a JSON object. Files
/// may be empty, for stages that read no rows.
std::string program_arguments(const tuning& u, const row_files& files, std::uint64_t updates);

/// The present day, as templates' date.
std::string today();

/// The numbers by which updates are made, by their names: of a job's arguments, or of those that a
/// checkpoint has. Empty for other texts.
std::map<std::string, double> update_options(const std::string& arguments);

}  // namespace troupe::gpu
