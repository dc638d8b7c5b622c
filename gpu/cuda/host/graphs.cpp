#include "gpu/cuda/host/graphs.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "messages/base/invariant.hpp"

namespace troupe::gpu::cuda {

namespace {

constexpr std::size_t fewest_calls = 4;  // minimum for which a graph is worth its launch
constexpr std::size_t max_known = 128;   // each micro-batch in flight has its own memory

}  // namespace

pass_graphs::~pass_graphs() {
  for (auto& [k, v] : known_)
    if (v.graph != nullptr) behind().drop_graph(v.graph);
}

// A graph replays fixed arguments, so its key is the sequence of kernels with all their arguments,
// addresses included. A kernel whose arguments change in each pass is launched by itself, and
// splits the pass in two graphs.
void pass_graphs::perform(call what, std::function<void(machine&)> how) {
  if (!in_pass_ || what.changes || !possible_) {
    flush();
    how(behind());
    return;
  }
  key_.push_back(std::hash<std::string_view>{}(what.name));
  key_.insert(key_.end(), what.arguments.begin(), what.arguments.end());
  waiting_.push_back(std::move(how));
}

// Kernels outside of a pass are launched at once.
void pass_graphs::end_pass() {
  flush();
  in_pass_ = false;
}

// A pass that failed half-way: its waiting kernels are never launched.
void pass_graphs::drop_pass() noexcept {
  waiting_.clear();
  key_.clear();
  in_pass_ = false;
}

// A sequence is recorded at its second occurrence: one that occurs once costs no graph, whose
// instantiation takes longer than launching its kernels. The least recently used is dropped.
void pass_graphs::flush() {
  TROUPE_INVARIANT(waiting_.empty() == key_.empty(),
                   "a graph's key names the kernels that it launches");
  if (waiting_.empty()) return;
  if (waiting_.size() < fewest_calls) {
    do_all();
  } else if (const auto found = known_.find(key_); found == known_.end()) {
    do_all();
    if (known_.size() >= max_known) forget_oldest();
    known_[key_].used = ++turn_;
  } else {
    auto& k = found->second;
    k.used = ++turn_;
    if (k.graph == nullptr) make(k);
    if (k.graph != nullptr) {
      behind().run_graph(k.graph);
      ++counts_.run;
    } else {
      do_all();
    }
  }
  waiting_.clear();
  key_.clear();
}

void pass_graphs::do_all() {
  for (const auto& how : waiting_) how(behind());
}

// Recording launches nothing, so the caller runs the graph afterwards. After a failure this machine
// records no graphs any more; the caller then launches the kernels themselves.
void pass_graphs::make(known& k) {
  possible_ = behind().begin_graph();
  if (!possible_) return;
  try {
    do_all();
  } catch (const std::runtime_error&) {
    if (auto* half = behind().end_graph()) behind().drop_graph(half);
    possible_ = false;  // launch kernels one by one from now on; a persistent error will recur
    return;
  }
  k.graph = behind().end_graph();
  possible_ = k.graph != nullptr;
  if (possible_) ++counts_.made;
}

// Dropping a graph waits for the GPU, so the limit is well above the sequences of a schedule.
void pass_graphs::forget_oldest() {
  const auto oldest =
      std::min_element(known_.begin(), known_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  if (oldest->second.graph != nullptr) behind().drop_graph(oldest->second.graph);
  known_.erase(oldest);
}

// Graphs can be switched off to compare results and times without them.
std::shared_ptr<machine> with_graphs(std::shared_ptr<machine> m) {
  const auto* wish = std::getenv("TROUPE_CUDA_GRAPHS");
  if (wish != nullptr && std::string_view{wish} == "0") return m;
  return std::make_shared<pass_graphs>(std::move(m));
}

}  // namespace troupe::gpu::cuda
