#pragma once

#include <string_view>

namespace troupe::runtime {

/// Is it a variable of another launcher or scheduler (Slurm, PBS, LSF, Flux, Open MPI, MPICH, Intel
/// MPI, PMI, torchrun), or of a job of Troupe's? A program that is started here must not inherit
/// one: MPI and torch would take it for a rank of the job from whose shell this process was
/// started. docs/operating.md lists them.
bool belongs_to_another_job(std::string_view name);

}  // namespace troupe::runtime
