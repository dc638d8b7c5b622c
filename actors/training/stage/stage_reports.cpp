#include "actors/training/stage/stage_reports.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

// Runs may overtake each other: an older one is no measure of the clock.
void stage_reports::on_run(const stage_run& r) {
  if (r.sent_s > run_sent_s_) {
    run_sent_s_ = r.sent_s;
    run_received_s_ = messenger_.now_s();
    ahead_s_ = r.ahead_s;
  }
  acknowledged_ = std::max(acknowledged_, r.acknowledged);
  while (!unacknowledged_.empty() && unacknowledged_.front().iteration < acknowledged_)
    unacknowledged_.pop_front();
  for (const auto& report : unacknowledged_) send(report);
}

void stage_reports::report(stage_report r) {
  send(r);
  unacknowledged_.push_back(std::move(r));
}

// The times are those of this copy: a repeated report is a new sample of the round trip.
void stage_reports::send(stage_report r) {
  r.name = setup_->name;
  r.incarnation = setup_->incarnation;
  r.request_sent_s = run_sent_s_;
  r.received_s = run_received_s_;
  r.replied_s = messenger_.now_s();
  messenger_.send(trainer_, r);
}

}  // namespace troupe::actors
