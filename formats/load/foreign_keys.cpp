#include "formats/load/foreign_keys.hpp"

#include <algorithm>
#include <ranges>

namespace troupe::formats {

namespace {

// People bring habits from other schedulers. For a key of theirs, "unknown key" with the nearest
// spelling would mislead; this table answers with the key that does the same here, or says that
// there is none and why.
/// Keys that mean the same, with a blank between two of them.
struct foreign_keys {
  std::string_view keys, advice;

  bool has(std::string_view key) const {
    const auto is_it = [&](auto&& word) { return std::ranges::equal(word, key); };
    return std::ranges::any_of(std::views::split(keys, ' '), is_it);
  }
};

/// Keys of Slurm, Kubernetes and Kueue, SkyPilot, Ray, PBS and LSF.
constexpr foreign_keys all_foreign_keys[] = {
    {"time timeout walltime activeDeadlineSeconds",
     "time_limit_s limits how long it runs, deadline_s when it ends"},
    {"depends_on dependency dependencies after",
     "jobs do not depend on each other; `troupe wait 3 && troupe submit FILE` runs one after "
     "another"},
    {"array parallelism completions replicas", "submit one job for each; a shell's loop does"},
    {"gres num_gpus n_gpus ngpus gpu_count accelerators resources",
     "gpus is the total number of GPUs, gpu_type their type"},
    {"gpus_per_node",
     "gpus is the total number of GPUs; how many are on a node follows from the plan"},
    {"nodes num_nodes nnodes",
     "gpus is the total number of GPUs; the number of nodes follows from the plan"},
    {"nproc_per_node ntasks_per_node ntasks",
     "the command is started once on each node, and torchrun starts its ranks"},
    {"exclusive", "a GPU has one job at a time; nodes are shared"},
    {"nodelist nodeSelector", "use gpu_type; where a job runs follows from the plan"},
    {"partition queue", "use gpu_type and priority; there is one queue"},
    {"qos", "use priority, a number; there is one queue"},
    {"quota", "quota is a key of GPU types, in a cluster file; max_gpus bounds a job's GPUs"},
    {"priorityClassName", "use priority, a number"},
    {"cpus cpu cpus_per_task mem",
     "only GPUs are scheduled; a program may use the processors and memory of its nodes"},
    {"memory", "memory_gb is the memory of each GPU that a program needs"},
    {"image image_id container docker",
     "programs run on the node itself; a container's runtime can be the command"},
    {"workdir cwd chdir file_mounts volumes",
     "use working_directory; files are not copied to the nodes"},
    {"env envs environment_variables", "use environment, a map of variables"},
    {"run script entrypoint args", "command is a list: the program and its arguments"},
    {"setup", "make it a part of the command: sh -c 'setup && program'"},
    {"output", "`troupe logs JOB` shows what a program writes"},
    {"job_name", "use name (--name of a command)"},
    {"user account", "a job belongs to the key that submits it"},
    {"backoffLimit restartPolicy retry num_retries max_retries max_attempts attempts "
     "podFailurePolicy reschedule restart job_retries",
     "use retries, a number or a map; a job whose node is lost is queued again without it "
     "(max_restarts)"},
    {"requeue",
     "a job whose node is lost is queued again (max_restarts); retries repeats one that has "
     "failed"},
    {"begin",
     "a job may start at once; `troupe suspend JOB` holds it, `troupe resume JOB` releases it"},
    {"hold", "`troupe suspend JOB` holds a job, `troupe resume JOB` releases it"},
};

}  // namespace

std::string_view advice_on_key(std::string_view key) {
  for (const auto& known : all_foreign_keys)
    if (known.has(key)) return known.advice;
  return {};
}

}  // namespace troupe::formats
