#include "runtime/process/inherited_variables.hpp"

#include <algorithm>
#include <array>

#include "messages/base/environment.hpp"

namespace troupe::runtime {

namespace {

constexpr std::array<std::string_view, 25> prefixes{
    // Slurm, PBS, Grid Engine, LSF, IBM's jsrun, Cobalt, Flux, HPE's PALS and ALPS
    "SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "PBS_", "SGE_TASK_", "LSB_", "LS_JOB",
    "JSM_", "COBALT_", "FLUX_", "PALS_", "ALPS_",
    // PMI and the launchers of Open MPI, PRRTE, MPICH, Intel MPI and MVAPICH
    "PMI_", "PMI2_", "PMIX_", "PRTE_", "OMPI_", "HYDRA_", "HYDI_", "MV2_COMM_WORLD_",
    // torchrun
    "PET_", "TORCHELASTIC_",
    // Horovod
    "HOROVOD_GLOO_"};

constexpr std::array<std::string_view, 15> single_names{
    "MPI_LOCALRANKID",    "MPI_LOCALNRANKS",    "GROUP_RANK",         "GROUP_WORLD_SIZE",
    "ROLE_RANK",          "ROLE_WORLD_SIZE",    "ROLE_NAME",          "PE_HOSTFILE",
    "HOROVOD_RANK",       "HOROVOD_SIZE",       "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME"};

// Variables that a node sets for its own jobs: under a node that is itself a job, these are of the
// other one. The rest of TROUPE_ are settings, such as TROUPE_STATE and TROUPE_PYTHON.
constexpr std::array<std::string_view, 19> of_jobs{"TROUPE_JOB",
                                                   "TROUPE_JOB_NAME",
                                                   "TROUPE_LEASE",
                                                   "TROUPE_NODE",
                                                   "TROUPE_GPU_TYPE",
                                                   "TROUPE_DATA_PARALLEL",
                                                   "TROUPE_TENSOR_PARALLEL",
                                                   "TROUPE_PIPELINE_PARALLEL",
                                                   "TROUPE_GLOBAL_BATCH",
                                                   "TROUPE_ITERATIONS",
                                                   "TROUPE_PREDICTED_BYTES",
                                                   "TROUPE_OOM_EXIT",
                                                   "TROUPE_ATTEMPT",
                                                   "TROUPE_ITERATION",
                                                   "TROUPE_REPORT",
                                                   "TROUPE_CONTROL",
                                                   "TROUPE_GRACE_S",
                                                   "TROUPE_WORKER_ADDRESS",
                                                   "TROUPE_WORKER_TOKEN"};

template <class List>
bool has(const List& all, std::string_view name) {
  return std::ranges::find(all, name) != all.end();
}

}  // namespace

bool belongs_to_another_job(std::string_view name) {
  // Which of this machine's GPUs its programs may have is this machine's matter.
  if (name == "CUDA_VISIBLE_DEVICES") return false;
  return has(launch_variables, name) || has(of_jobs, name) || has(single_names, name) ||
         std::ranges::any_of(prefixes, [&](auto p) { return name.starts_with(p); });
}

}  // namespace troupe::runtime
