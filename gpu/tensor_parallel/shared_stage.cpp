#include "gpu/tensor_parallel/shared_stage.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "gpu/model/checkpoint.hpp"
#include "gpu/model/digest.hpp"

namespace troupe::gpu {

namespace {

// A part shares its owner's memory: nothing is copied.
payload part(const payload& whole, std::size_t which, std::size_t parts) {
  const auto size = whole.bytes().size() / parts;
  return payload{whole.owner(), whole.bytes().subspan(which * size, size)};
}

/// Does the error name what happened to a device, rather than to the operation?
bool is_cause(const reason& why) {
  return why.code == reason::kind::device_lost || why.code == reason::kind::out_of_memory;
}

}  // namespace

stage_spec shard_of(const stage_spec& whole, std::uint32_t shard, std::uint32_t shards) {
  auto s = whole;
  s.shard = shard;
  s.shards = shards;
  return s;
}

shared_stage::shared_stage(const stage_spec& whole, devices members,
                           std::function<void(const std::string&)> abort,
                           std::function<void(const std::string&)> close)
    : whole_{whole},
      parameters_{parameters_of(whole)},
      members_{std::move(members)},
      abort_{std::move(abort)},
      close_{close ? std::move(close) : abort_} {
  const auto size = size_of(whole);
  own_ = size.own_parameters;
  tied_ = size.tied_parameters;
  const auto shards = static_cast<std::uint32_t>(members_.size());
  for (std::uint32_t m = 0; m < shards; ++m)
    of_member_.push_back(parameters_of(shard_of(whole, m, shards)));
}

// The queue takes no more operations before the group closes, so none starts in a closed group.
shared_stage::~shared_stage() {
  queue_.close();
  close_("the device was closed");  // ends waits in a sum, so that the queue can end
}

void shared_stage::submit(operation o, done d) {
  queue_.submit(std::move(o), std::move(d),
                [this](const auto& what, const operation& all, const done& completed) {
                  completed(run(what, all));
                });
}

// Whole gradients are sliced per member; tied ones are replicated and pass unchanged.
template <class What>
What shared_stage::part_of(What whole, std::uint32_t member) const {
  if constexpr (operations::is_one_of<What, operations::join_communicator>)
    whole.id = part(whole.id, member, members_.size());
  if constexpr (operations::is_one_of<What, operations::update>)
    if (auto& own = whole.sums.own;
        !whole.sums.empty() && own.bytes().size() == own_ * sizeof(float))
      own = own_part(own, member);
  return whole;
}

// Squared norms add up, because each member counts only its slices and one of them the replicated
// parameters. Activations are equal on all members after the sums: those of the first are the
// result.
template <class Result>
Result shared_stage::whole_of(std::vector<Result> parts) const {
  if constexpr (operations::is_one_of<Result, operations::update::result>)
    for (std::size_t m = 1; m < parts.size(); ++m) parts[0].squared_norm += parts[m].squared_norm;
  if constexpr (operations::is_one_of<Result, operations::make_communicator_id::result>) {
    std::vector<std::byte> all;
    for (const auto& p : parts) all.insert(all.end(), p.id.bytes().begin(), p.id.bytes().end());
    parts[0].id = payload{std::move(all)};
  }
  if constexpr (operations::is_one_of<Result, own_and_tied>) {
    std::vector<std::vector<float>> of_members;
    for (const auto& p : parts) {
      auto both = p.own.template values<float>();
      const auto tied = p.tied.template values<float>();
      both.insert(both.end(), tied.begin(), tied.end());
      of_members.push_back(std::move(both));
    }
    const auto all = payload{joined(of_members)};
    const auto own = own_ * sizeof(float);
    return {payload{all.owner(), all.bytes().subspan(0, own)},
            payload{all.owner(), all.bytes().subspan(own)}};
  }
  return std::move(parts[0]);
}

// Every member executes every operation, in the same order, as the group's sums require. The stage
// begins with its first member and ends with its last.
template <class What>
expected<outcome> shared_stage::run(const What& what, const operation& o) {
  std::vector<operation> asked(members_.size(), o);
  for (std::uint32_t m = 0; m < members_.size(); ++m) asked[m].what = part_of(what, m);
  auto parts = on_all(operations::is_pass<What>, [&](std::uint32_t m, done d) {
    members_[m]->submit(std::move(asked[m]), std::move(d));
  });
  if (!parts) return refuse(parts.error());
  outcome all = parts->front();
  std::vector<typename What::result> results;
  for (outcome& p : *parts) {
    results.push_back(std::move(p.of<What>()));
    all.begin_s = std::min(all.begin_s, p.begin_s);
    all.end_s = std::max(all.end_s, p.end_s);
    all.compute_s = std::max(all.compute_s, p.compute_s);
  }
  all.what = whole_of(std::move(results));
  return all;
}

// The file is of the whole stage, so that any number of devices can load it.
expected<outcome> shared_stage::run(const operations::save& what, const operation&) {
  auto parts =
      on_all(false, [&](std::uint32_t m, done d) { members_[m]->submit_values(std::move(d)); });
  if (!parts) return refuse(parts.error());
  using values = operations::values::result;
  const auto all = [&](payload values::*list) {
    std::vector<std::vector<float>> of_members;
    for (auto& p : *parts) of_members.push_back((p.of<operations::values>().*list).values<float>());
    return joined(of_members);
  };
  auto weights = all(&values::weights), first = all(&values::first_moments),
       second = all(&values::second_moments);
  const auto steps = parts->front().of<operations::values>().steps;
  const auto ok = save_values(what.path, whole_, steps, {parameters_, own_, weights, first, second},
                              what.whole);
  if (!ok) return refuse(ok.error());
  return outcome{};
}

// The whole stage's weights give it, so it is the same for any number of devices.
expected<outcome> shared_stage::run(const operations::digest&, const operation& o) {
  auto all = run(operations::weights{}, o);
  if (all) all->what = digest_of(all->of<operations::weights>());
  return all;
}

/// `sums`: the members sum during the operation. The error is the cause: others follow from it.
expected<std::vector<outcome>> shared_stage::on_all(bool sums, const giver& give) {
  struct gathering {
    std::mutex guard;
    std::condition_variable done;
    std::vector<outcome> results;
    std::size_t missing = 0;
    std::optional<reason> first;
  };
  gathering g;
  g.results.resize(members_.size());
  g.missing = members_.size();
  // A rejected operation changes nothing, and all members reject it: none waits in a sum then.
  for (std::uint32_t m = 0; m < members_.size(); ++m)
    give(m, [this, &g, m, sums](expected<outcome> r) {
      const bool broken =
          sums && !r && (r.error().code == reason::kind::unavailable || is_cause(r.error()));
      const auto why = r ? std::string{} : r.error().text;
      if (broken) abort_(why);
      std::lock_guard lock{g.guard};
      // The others' errors say only that they were aborted, and one of them may come first.
      if (!r && (!g.first || (is_cause(r.error()) && !is_cause(*g.first)))) g.first = r.error();
      if (r) g.results[m] = std::move(*r);
      if (--g.missing == 0) g.done.notify_one();
    });
  std::unique_lock lock{g.guard};
  g.done.wait(lock, [&] { return g.missing == 0; });
  if (g.first) return refuse(*g.first);
  return std::move(g.results);
}

// The member's own gradients, in the layout that it has: its slices, one parameter after another.
payload shared_stage::own_part(const payload& own, std::uint32_t member) const {
  const auto values = own.values<float>();
  std::vector<float> mine;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto &whole = parameters_[i], &p = of_member_[member][i];
    if (p.tied) continue;
    const auto at = mine.size();
    mine.resize(at + p.values());
    take_share(p, std::span{values}.subspan(whole.offset, whole.values()),
               std::span{mine}.subspan(at));
  }
  return payload{std::move(mine)};
}

// Replicated parameters are equal on all members, so those of the first are taken.
std::vector<float> shared_stage::joined(const std::vector<std::vector<float>>& from) const {
  std::vector<float> all(own_ + tied_);
  for (std::size_t m = 0; m < from.size(); ++m) {
    const auto own = from[m].size() - tied_;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto &whole = parameters_[i], &p = of_member_[m][i];
      if (m > 0 && p.runs == 0) continue;  // replicated
      put_share(p, std::span{from[m]}.subspan(p.tied ? own : p.offset, p.values()),
                std::span{all}.subspan(p.tied ? own_ : whole.offset, whole.values()));
    }
  }
  return all;
}

}  // namespace troupe::gpu
