#include "gpu/tensor_parallel/shared_stage.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "gpu/model/checkpoint.hpp"

namespace troupe::gpu {

namespace {

using kind = operation::kind;

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
      close_{close ? std::move(close) : abort_},
      queue_{[this](const operation& o, const done& completed) { completed(run(o)); }} {
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
  queue_.submit(std::move(o), std::move(d));
}

// Every member executes every operation, in the same order, as the group's sums require.
expected<outcome> shared_stage::run(const operation& o) {
  std::vector<operation> asked;
  for (std::uint32_t m = 0; m < members_.size(); ++m) asked.push_back(part_of(o, m));
  std::vector<outcome> parts;
  auto results = on_all(asked);
  for (std::size_t m = 0; m < results.size(); ++m)
    if (!results[m]) return refuse(results[m].error());
  for (auto& r : results) parts.push_back(std::move(*r));
  return whole_of(o, std::move(parts));
}

/// The first error in the list is the cause: the others follow from it.
std::vector<expected<outcome>> shared_stage::on_all(const std::vector<operation>& all) {
  struct gathering {
    std::mutex guard;
    std::condition_variable done;
    std::vector<expected<outcome>> results;
    std::size_t missing = 0;
    std::optional<reason> first;
  };
  gathering g;
  g.results.resize(all.size(), refuse(reason::kind::unavailable, ""));
  g.missing = all.size();
  // A rejected operation changes nothing, and all members reject it: none waits in a sum then.
  const bool sums = all[0].what == kind::forward || all[0].what == kind::recompute ||
                    all[0].what == kind::backward;
  for (std::size_t m = 0; m < all.size(); ++m)
    members_[m]->submit(all[m], [this, &g, m, sums](expected<outcome> r) {
      const bool broken =
          sums && !r && (r.error().code == reason::kind::unavailable || is_cause(r.error()));
      const auto why = r ? std::string{} : r.error().text;
      if (broken) abort_(why);
      std::lock_guard lock{g.guard};
      // The others' errors say only that they were aborted, and one of them may come first.
      if (!r && (!g.first || (is_cause(r.error()) && !is_cause(*g.first)))) g.first = r.error();
      g.results[m] = std::move(r);
      if (--g.missing == 0) g.done.notify_one();
    });
  std::unique_lock lock{g.guard};
  g.done.wait(lock, [&] { return g.missing == 0; });
  if (g.first) g.results[0] = refuse(*g.first);
  return std::move(g.results);
}

// A save asks members for their values: the file is of the whole stage, so that any number of
// devices can load it. Whole gradients are sliced per member; tied ones are replicated and pass
// unchanged.
operation shared_stage::part_of(const operation& o, std::uint32_t member) const {
  auto mine = o;
  if (o.what == kind::save) mine.what = kind::values;
  if (o.what == kind::join_communicator && !o.in.empty())
    mine.in = {part(o.in[0], member, members_.size())};
  const bool whole_gradients =
      o.what == kind::update && o.in.size() == 2 && o.in[0].bytes().size() == own_ * sizeof(float);
  if (whole_gradients) mine.in[0] = own_part(o.in[0], member);
  return mine;
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

expected<outcome> shared_stage::save(const operation& o, const std::vector<outcome>& parts) const {
  std::vector<std::vector<float>> values;  // weights, first and second moments
  for (std::size_t what = 0; what < 3; ++what) {
    std::vector<std::vector<float>> of_members;
    for (const auto& p : parts) of_members.push_back(p.out[what].values<float>());
    values.push_back(joined(of_members));
  }
  const auto ok = save_values(o.path, whole_, parts[0].steps,
                              {parameters_, own_, values[0], values[1], values[2]});
  if (!ok) return refuse(ok.error());
  return outcome{};
}

// The stage begins with its first member and ends with its last. Squared norms add up, because each
// member counts only its slices and one of them the replicated parameters. Activations are equal on
// all members after the sums: those of the first are the result.
expected<outcome> shared_stage::whole_of(const operation& o, std::vector<outcome> parts) const {
  if (o.what == kind::save) return save(o, parts);
  auto result = parts[0];
  for (std::size_t m = 1; m < parts.size(); ++m) {
    result.squared_norm += parts[m].squared_norm;
    result.begin_s = std::min(result.begin_s, parts[m].begin_s);
    result.end_s = std::max(result.end_s, parts[m].end_s);
    result.compute_s = std::max(result.compute_s, parts[m].compute_s);
  }
  if (o.what == kind::make_communicator_id) {
    std::vector<std::byte> all;
    for (const auto& p : parts)
      all.insert(all.end(), p.out[0].bytes().begin(), p.out[0].bytes().end());
    result.out = {payload{std::move(all)}};
  } else if (o.what == kind::values) {
    for (std::size_t what = 0; what < result.out.size(); ++what) {
      std::vector<std::vector<float>> of_members;
      for (const auto& p : parts) of_members.push_back(p.out[what].values<float>());
      result.out[what] = payload{joined(of_members)};
    }
  } else if (o.what == kind::gradients || o.what == kind::weights) {
    std::vector<std::vector<float>> of_members;
    for (const auto& p : parts) {
      auto both = p.out[0].values<float>();
      const auto tied = p.out[1].values<float>();
      both.insert(both.end(), tied.begin(), tied.end());
      of_members.push_back(std::move(both));
    }
    const auto all = payload{joined(of_members)};
    const auto own = own_ * sizeof(float);
    result.out = {payload{all.owner(), all.bytes().subspan(0, own)},
                  payload{all.owner(), all.bytes().subspan(own)}};
  }
  return result;
}

}  // namespace troupe::gpu
