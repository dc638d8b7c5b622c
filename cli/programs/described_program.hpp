#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/output/output.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/layer_file.hpp"
#include "messages/domain/model.hpp"

// Models of programs' layers, as `python3 -m troupe.describe` finds them on this machine.

namespace troupe::cli {

struct described_program {
  troupe::model model;
  std::string sha256;  // of the program's file
  json document;       // of `troupe describe --json`
};

/// Runs the program's interpreter. Fails with what the program cannot do, or with the reason why
/// there is no PyTorch here.
expected<described_program> describe_program(const layer_file& p);
/// The same by another module of the package, whose document has more.
/// `watch` gets the last line that it has printed, from time to time.
expected<described_program> describe_program(
    const layer_file& p, const std::string& module, const std::vector<std::string>& more,
    const std::function<void(const std::string&)>& watch = {});

/// A job without `train:` is a program of somebody's, whether its file names a command or not: its
/// stages send and wait as a program's do. Those of the built-in trainer compute meanwhile.
/// `read`: the job as its file says it.
job_spec as_program(job_spec job, const job_spec& read);

/// formats::load_job for jobs of this machine: a training of a program that names no model gets
/// the one that is found here.
expected<job_spec> load_job(const std::string& file, std::span<const gpu_type> catalogue = {},
                            std::vector<std::string>* notices = nullptr);

/// The same for a verb of people: a program's layers take seconds to read, which it says first.
expected<job_spec> load_job(const output& out, const std::string& file,
                            std::vector<std::string>* notices = nullptr);

}  // namespace troupe::cli
