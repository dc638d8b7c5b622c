#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device/operation_queue.hpp"
#include "gpu/model/parameters.hpp"

namespace troupe::gpu {

/// A stage shared by several devices of a node (Megatron's tensor parallelism): each has some of
/// the heads and of the MLP's columns, and a copy of the rest, and they all-reduce inside every
/// sublayer. To its user it is one device: gradients and weights are those of the whole stage, in
/// the order of a single device, and checkpoints are independent of the number of devices.
class shared_stage final : public stage_device {
 public:
  using devices = std::vector<std::unique_ptr<member_device>>;
  /// `members`: by rank, each created for shard_of(whole, ...). `abort`: called with the reason
  /// when one of them fails, so that the others stop waiting for it. `close`: called at the end; if
  /// empty, `abort` is.
  shared_stage(const stage_spec& whole, devices members,
               std::function<void(const std::string&)> abort,
               std::function<void(const std::string&)> close = {});
  ~shared_stage() override;

  void submit(operation o, done d) override;

 private:
  template <class What>
  expected<outcome> run(const What& what, const operation& o);
  expected<outcome> run(const operations::save& what, const operation&);
  expected<outcome> run(const operations::digest&, const operation& o);

  using giver = std::function<void(std::uint32_t member, done)>;
  expected<std::vector<outcome>> on_all(bool sums, const giver& give);

  /// A member's part of an operation.
  template <class What>
  What part_of(What whole, std::uint32_t member) const;
  /// The stage's result from its members'.
  template <class Result>
  Result whole_of(std::vector<Result> parts) const;
  /// Values of the whole stage from the members' values that `from` returns: own and then tied.
  std::vector<float> joined(const std::vector<std::vector<float>>& from) const;
  payload own_part(const payload& own, std::uint32_t member) const;

  stage_spec whole_;
  std::vector<parameter> parameters_;              // of the whole stage
  std::vector<std::vector<parameter>> of_member_;  // the same parameters, as each rank has them
  std::uint64_t own_ = 0, tied_ = 0;
  devices members_;
  std::function<void(const std::string&)> abort_, close_;
  operation_queue queue_;
};

/// A rank's part of a shared stage.
stage_spec shard_of(const stage_spec& whole, std::uint32_t shard, std::uint32_t shards);

}  // namespace troupe::gpu
