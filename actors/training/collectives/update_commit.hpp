#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The agreement of all stages of all pipelines to update, in two phases: nobody updates before
/// everybody has its sums of gradients. So whenever stages are lost, those that are left have done
/// the same number of iterations, or of two adjacent ones; and if one has updated, all others can.
///
/// A stage's lead is the same stage of pipeline 0. A stage that has its sums is ready, and tells
/// its lead. A lead whose peers are ready, and the lead behind it, tells the lead before it; the
/// first lead commits, for all. The word goes back the same ways.
///
/// With it go the squared norms of all layers, for programs that clip by them: leads add their own,
/// from the last layer to the first, so that the bits are the same however the model is cut. Later
/// stages end an iteration first, so the first one waits for nobody else's word, and its own
/// travels beside the next iteration's first activation: no iteration is longer by a way between
/// stages.
///
/// And with it goes what a stage is not ready for beside the update: a checkpoint, of which it
/// still writes the one before, or a copy of its state, which would come too soon after its last.
/// Both count only with those of all stages, so that all begin one or none does.
class update_commit {
 public:
  using outgoing = std::vector<gradient_all_reduce::outgoing>;

  update_commit() = default;
  explicit update_commit(const stage_setup& s)
      : pipeline_{s.name.pipeline},
        stage_{s.name.stage},
        stages_{s.stages},
        ready_peers_(s.pipelines, false) {}

  /// After this update no stage begins a checkpoint, or copies its state. REQUIRES: begin() has not
  /// been called.
  void skip_checkpoint() { skips_ |= checkpoint; }
  void skip_copy() { skips_ |= copy; }
  /// This stage can update. `norms`: the squared norms of its layers, if its program needs those of
  /// all. `own`: of a last stage, if the training heals: all stages then know the iteration's
  /// records before one of them updates. Returns what to send.
  outgoing begin(std::vector<double> norms, std::optional<pipeline_record> own = {});
  /// From a lead or a peer; it may arrive before begin(). Returns what to send.
  outgoing receive(const tensor& t, const payload& body);

  /// A view begins with the update, whose word may have been lost. REQUIRES: begin().
  void agree(const agreed_update& u);

  /// All stages have begun: this one may update.
  bool complete() const { return total_.has_value(); }
  /// The squared norm of all layers. REQUIRES: complete().
  double squared_norm() const {
    TROUPE_INVARIANT(total_, "a norm is that of an update that was agreed on");
    return *total_;
  }
  /// Some stage skips it, and so do all. REQUIRES: complete().
  bool skips_checkpoint() const { return (skips_ & checkpoint) != 0; }
  bool skips_copy() const { return (skips_ & copy) != 0; }
  /// With the records of pipelines that are known. None: it was not agreed on.
  std::optional<agreed_update> agreed() const {
    if (!total_) return {};
    return agreed_update{*total_, records_};
  }
  /// The tensors that this stage waits for, once it has begun.
  std::vector<gradient_all_reduce::missing_tensor> missing() const;
  /// A received tensor has the wrong size, or is a commit before this stage is ready; empty: none.
  const std::string& error() const { return error_; }

 private:
  bool is_lead() const { return pipeline_ == 0; }
  bool is_last() const { return stage_ + 1 == stages_; }
  bool peers_are_ready() const;
  outgoing advance();
  outgoing pass_on() const;
  void add(const pipeline_record& r);
  gradient_all_reduce::outgoing to(std::uint32_t pipeline, std::uint32_t stage, tensor::kind what,
                                   double sum) const;

  std::uint32_t pipeline_ = 0, stage_ = 0, stages_ = 1;
  std::optional<std::vector<double>> norms_;
  std::vector<bool> ready_peers_{false};  // by pipeline, of a lead
  std::optional<double> behind_, total_;  // squared norms, of the stages behind this one and of all
  std::vector<pipeline_record> records_;
  enum skipped : std::uint8_t { checkpoint = 1, copy = 2 };
  std::uint8_t skips_ = 0;
  bool said_ = false;  // that it is ready, or the first lead: to update
  std::string error_;
};

}  // namespace troupe::actors
