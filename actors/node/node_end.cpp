#include <algorithm>

#include "actors/node/node.hpp"
#include "runtime/host/log.hpp"

// The orderly end of a node's process. Whatever runs is asked to stop as by the controller, which
// learns of it from the running parts' word: it stops their other parts, and starts them elsewhere
// or later. Once all have ended and the controller knows how, the process ends.

namespace troupe::actors {

namespace {

constexpr double kill_s = 2;    // for what does not end with its grace
constexpr double answer_s = 3;  // for the controller's acknowledgement of the last report

}  // namespace

void node_state::say_what_is_awaited() {
  if (std::exchange(awaits_, true)) return;
  std::vector<const work_order*> work;
  for_each_running([&](const part& p) { work.push_back(&p.order); });
  const auto all = awaited(*options_.cluster, work);
  if (!all.sentence.empty())
    runtime::log(runtime::log_level::info, "node", all.sentence,
                 {{"parts", work.size()}, {"seconds", all.within_s}});
  if (options_.on_waiting) options_.on_waiting(all);
}

/// A training ends by its trainer, which may be on another node: the controller asks that one.
void node_state::ask_to_end(part& p) {
  p.report.word = end_word::node_stopped;
  if (p.training && !p.held)
    training_.stop_gracefully(p.order.lease);
  else
    stop(p, false);
}

void node_state::on(const end_node&) {
  if (end_by_s_) return;
  say_what_is_awaited();
  double grace_s = 0;
  for_each_running(
      [&](const part& p) { grace_s = std::max(grace_s, grace_of(*options_.cluster, p.order)); });
  end_by_s_ = now() + grace_s + kill_s;
  for_each_running([this](part& p) { ask_to_end(p); });
  report();
  end_when_done();
}

void node_state::end_when_done() {
  if (!end_by_s_ || !options_.on_ended) return;
  bool running = false, known = true;
  for_each_running([&](part& p) {
    if (now() >= *end_by_s_) stop(p, true);
    running = running || p.report.now == part_report::state::running;
  });
  if (running && now() < *end_by_s_ + kill_s) return;
  if (changed_) report();
  for (const auto& [id, p] : parts_)
    known = known && p.end_report != 0 && p.end_report <= acknowledged_;
  if (!leave_by_s_) leave_by_s_ = now() + answer_s;
  if (known || now() >= *leave_by_s_) options_.on_ended();
}

}  // namespace troupe::actors
