#pragma once

#include "gpu/device/operation_queue.hpp"
#include "gpu/model/parameters.hpp"

namespace troupe::gpu {

/// A stage that several devices of a node share (tensor parallelism, Megatron's): each has some of
/// the heads and of the MLP's columns, all of the rest, and they sum inside every sublayer. To
/// whoever runs it, it is one device: gradients and weights are those of the whole stage, in the
/// order that one device has, and checkpoints do not show how many shared it.
class shared_stage final : public stage_device {
 public:
  using devices = std::vector<std::unique_ptr<stage_device>>;
  /// `members`: by share, each made of share_of(whole, ...). `abort`: told why when one of them
  /// cannot go on, so that the others wait for it no longer. `close`: told when it goes, if not the
  /// same is to be done then.
  shared_stage(const stage_spec& whole, devices members,
               std::function<void(const std::string&)> abort,
               std::function<void(const std::string&)> close = {});
  ~shared_stage() override;

  void submit(operation o, done d) override;

 private:
  expected<outcome> run(const operation& o);
  std::vector<expected<outcome>> on_all(const std::vector<operation>& all);
  operation part_of(const operation& o, std::uint32_t member) const;
  expected<outcome> whole_of(const operation& o, std::vector<outcome> parts) const;
  expected<outcome> save(const operation& o, const std::vector<outcome>& parts) const;
  /// Values of the whole stage, of which `from` gives a member's: own and then tied.
  std::vector<float> joined(const std::vector<std::vector<float>>& from) const;
  payload own_part(const payload& own, std::uint32_t member) const;

  stage_spec whole_;
  std::vector<parameter> parameters_;              // of the whole stage
  std::vector<std::vector<parameter>> of_member_;  // the same parameters, as each has them
  std::uint64_t own_ = 0, tied_ = 0;
  devices members_;
  std::function<void(const std::string&)> abort_, close_;
  operation_queue queue_;
};

/// The stage of one of several devices that share it.
stage_spec share_of(const stage_spec& whole, std::uint32_t share, std::uint32_t shares);

}  // namespace troupe::gpu
