#include "cli/connection/controller_connection.hpp"
#include "cli/verbs/jobs/suspension.hpp"
#include "cli/verbs/verb.hpp"
#include "planners/plans/plan_text.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

/// Waits until the job has done an iteration in its new place, and reports the cost of the move.
class move_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", wish_.job, "Number of a running training or elastic program")->required();
    app.add_option("--stages", wish_.stages, "Pipeline stages")->check(CLI::Range(1u, 100'000u));
    app.add_option("--data-parallel", wish_.data_parallel, "Pipelines")
        ->check(CLI::Range(1u, 100'000u));
    app.add_option("--tensor-parallel", wish_.tensor_parallel,
                   "GPUs of one node that share each stage")
        ->check(CLI::Range(1u, 64u));
    app.add_option("--gpus", wish_.gpus, "GPUs of an elastic program")
        ->check(CLI::Range(1u, 1'000'000u));
    app.add_option("--gpu", wish_.gpu_type, "Use GPUs of this type");
    app.add_option("--nodes", wish_.nodes, "Use only these nodes")->delimiter(',');
    app.add_option("--grace", grace_s_,
                   "Seconds to save a checkpoint (default: the cluster's preempt_grace_s)")
        ->check(CLI::NonNegativeNumber);
    remote_.options(app);
  }

  int run(output& out) override {
    if (wish_.stages + wish_.data_parallel + wish_.tensor_parallel + wish_.gpus.value_or(0) == 0 &&
        wish_.gpu_type.empty() && wish_.nodes.empty())
      return out.bad(
          "give a destination: --stages, --data-parallel, --tensor-parallel, --gpus, --gpu or "
          "--nodes");
    if (grace_s_ >= 0) wish_.grace_s = grace_s_;
    // Before the request: its attempts and iterations distinguish the old place from the new one.
    const auto before = status_of(remote_, wish_.job);
    if (!before) return out.failure(before.error());
    const auto reply = remote_.ask<move_reply>(wish_);
    if (!reply) return out.failure(reply.error());
    if (!reply->done) return refuse_suspension(out, wish_.job, reply->why);
    return follow(out, *before, *reply);
  }

 private:
  int follow(output& out, const job_status& before, const move_reply& reply) {
    // The reported duration is measured by these looks, so they are frequent.
    constexpr double look_every_s = 0.02;
    auto reached = before.iteration;       // before the move
    std::optional<std::uint64_t> resumed;  // iterations at its new start
    runtime::stopwatch still;              // time since the last new iteration
    for (;; runtime::pause(look_every_s)) {
      const auto now = status_of(remote_, wish_.job);
      if (!now) return out.failure(now.error());
      const bool moved = now->progress.attempts > before.progress.attempts;
      if (!moved && now->iteration > reached) {
        reached = now->iteration;
        still = {};
      }
      // Iterations after the checkpoint are computed again in the new place.
      if (moved && !resumed) resumed = now->progress.iterations_done;
      const bool over = is_final(now->state);
      if (over && !moved)
        return refuse_suspension(
            out, wish_.job,
            {reason::kind::invalid,
             fmt::format("job {} {} before it could be moved", wish_.job, to_string(now->state))});
      // A move counts as done with the first iteration of the new place: Only then has the training
      // really resumed.
      if (!moved || (!over && now->iteration <= *resumed)) continue;
      const auto lost = std::max(reached, *resumed) - *resumed;
      auto document = suspension(wish_.job, *resumed, still.s(), lost);
      document["checkpoint_traffic"] = reply.traffic.value_or(0);
      out.document(document);
      out.line("job {} moved after iteration {} in {:.2f} s and runs with {}{}{}", wish_.job,
               *resumed, still.s(), planners::split_text(reply.how),
               lost > 0 ? fmt::format("; {} iterations lost", lost) : "",
               reply.traffic ? fmt::format("; reading its checkpoint from another datacenter costs "
                                           "{:.4g}",
                                           *reply.traffic)
                             : "");
      return exit_done;
    }
  }

  move_job wish_;
  double grace_s_ = -1;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_move() {
  return std::make_unique<move_verb>();
}

}  // namespace troupe::cli
