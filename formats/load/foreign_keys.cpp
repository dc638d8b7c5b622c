#include "formats/load/foreign_keys.hpp"

#include <algorithm>
#include <iterator>

namespace troupe::formats {

namespace {

// People bring habits from other schedulers. For a key of theirs, "unknown key" with the nearest
// spelling would mislead; this table answers with the key that does the same here, or says that
// there is none and why.
namespace use {
constexpr std::string_view limit = "time_limit_s limits how long it runs, deadline_s when it ends";
constexpr std::string_view order =
    "jobs do not depend on each other; `troupe wait 3 && troupe submit FILE` runs one after "
    "another";
constexpr std::string_view many = "submit one job for each; a shell's loop does";
constexpr std::string_view gpus = "gpus is the total number of GPUs, gpu_type their type";
constexpr std::string_view host =
    "only GPUs are scheduled; a program may use the processors and memory of its nodes";
constexpr std::string_view folder = "use working_directory; files are not copied to the nodes";
constexpr std::string_view program = "command is a list: the program and its arguments";
constexpr std::string_view ranks =
    "the command is started once on each node, and torchrun starts its ranks";
constexpr std::string_view again = "a job whose node is lost is queued again; see max_restarts";
constexpr std::string_view container =
    "programs run on the node itself; a container's runtime can be the command";
constexpr std::string_view owner = "a job belongs to the key that submits it";
}  // namespace use

struct foreign_key {
  std::string_view key, advice;
};

/// Keys of Slurm, Kubernetes and Kueue, SkyPilot, Ray, PBS and LSF.
constexpr foreign_key foreign_keys[] = {
    {"time", use::limit},
    {"timeout", use::limit},
    {"walltime", use::limit},
    {"activeDeadlineSeconds", use::limit},
    {"depends_on", use::order},
    {"dependency", use::order},
    {"dependencies", use::order},
    {"after", use::order},
    {"array", use::many},
    {"parallelism", use::many},
    {"completions", use::many},
    {"replicas", use::many},
    {"gres", use::gpus},
    {"num_gpus", use::gpus},
    {"n_gpus", use::gpus},
    {"ngpus", use::gpus},
    {"gpu_count", use::gpus},
    {"accelerators", use::gpus},
    {"resources", use::gpus},
    {"gpus_per_node",
     "gpus is the total number of GPUs; how many are on a node follows from the plan"},
    {"nodes", "gpus is the total number of GPUs; the number of nodes follows from the plan"},
    {"num_nodes", "gpus is the total number of GPUs; the number of nodes follows from the plan"},
    {"nnodes", "gpus is the total number of GPUs; the number of nodes follows from the plan"},
    {"nproc_per_node", use::ranks},
    {"ntasks_per_node", use::ranks},
    {"exclusive", "a GPU has one job at a time; nodes are shared"},
    {"nodelist", "use gpu_type; where a job runs follows from the plan"},
    {"nodeSelector", "use gpu_type; where a job runs follows from the plan"},
    {"partition", "use gpu_type and priority; there is one queue"},
    {"queue", "use gpu_type and priority; there is one queue"},
    {"qos", "use priority, a number; there is one queue"},
    {"quota", "quota is a key of GPU types, in a cluster file; max_gpus bounds a job's GPUs"},
    {"priorityClassName", "use priority, a number"},
    {"cpus", use::host},
    {"cpu", use::host},
    {"cpus_per_task", use::host},
    {"mem", use::host},
    {"memory", "memory_gb is the memory of each GPU that a program needs"},
    {"ntasks", use::ranks},
    {"image", use::container},
    {"image_id", use::container},
    {"container", use::container},
    {"docker", use::container},
    {"workdir", use::folder},
    {"cwd", use::folder},
    {"chdir", use::folder},
    {"file_mounts", use::folder},
    {"volumes", use::folder},
    {"env", "use environment, a map of variables"},
    {"envs", "use environment, a map of variables"},
    {"environment_variables", "use environment, a map of variables"},
    {"run", use::program},
    {"script", use::program},
    {"entrypoint", use::program},
    {"args", use::program},
    {"setup", "make it a part of the command: sh -c 'setup && program'"},
    {"output", "`troupe logs JOB` shows what a program writes"},
    {"job_name", "use name (--name of a command)"},
    {"user", use::owner},
    {"account", use::owner},
    {"requeue", use::again},
    {"backoffLimit", use::again},
    {"retries", use::again},
    {"restartPolicy", use::again},
    {"begin",
     "a job may start at once; `troupe suspend JOB` holds it, `troupe resume JOB` releases it"},
    {"hold", "`troupe suspend JOB` holds a job, `troupe resume JOB` releases it"},
};

}  // namespace

std::string_view advice_on_key(std::string_view key) {
  const auto* const found = std::ranges::find(foreign_keys, key, &foreign_key::key);
  return found == std::end(foreign_keys) ? std::string_view{} : found->advice;
}

}  // namespace troupe::formats
