#include "web/dashboard/dashboard_watcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "messages/base/refuse.hpp"
#include "messages/wire/job_pages.hpp"
#include "web/dashboard/dashboard_json.hpp"

namespace troupe::web {

namespace {

// Bounds of what browsers can make the dashboard hold: questions to the controller that wait, open
// streams, and trainings whose reports are kept for metrics.
constexpr std::size_t max_questions = 256, max_readers = 64, max_trainings = 64;

/// The newest report without iterations before the newest: metrics need no history.
// A reply has only the iterations after the position that was asked for: without new ones the last
// known iteration stays, unless the training has been restarted since.
training_report merged(const training_report* known, training_report newer) {
  if (newer.iterations.empty() && known && known->lease == newer.lease)
    newer.iterations = known->iterations;
  if (newer.iterations.size() > 1) newer.iterations = {newer.iterations.back()};
  newer.events.clear();
  return newer;
}

}  // namespace

dashboard_watcher::dashboard_watcher(controller_source source, double every_s,
                                     const runtime::clock& clock)
    : source_{std::move(source)},
      every_s_{every_s},
      clock_{clock},
      // The controller counts as absent from the start of the dashboard.
      last_answer_s_{clock.now_s()},
      view_{std::make_shared<view>(view{{}, {}, "the controller has not been reached yet", 0, {}})},
      thread_{[this] { run(); }} {}

dashboard_watcher::~dashboard_watcher() {
  {
    const std::lock_guard hold{mutex_};
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::shared_ptr<const dashboard_watcher::view> dashboard_watcher::now() const {
  const std::lock_guard hold{mutex_};
  return view_;
}

bool dashboard_watcher::ask(message request, std::function<void(expected<message>)> then) {
  {
    const std::lock_guard hold{mutex_};
    if (questions_.size() >= max_questions) return false;
    questions_.push_back([this, request = std::move(request), then = std::move(then)] {
      // While the controller is absent each question would wait for it in turn.
      if (const auto v = now(); !v->known)
        return then(refuse(reason::kind::unavailable, v->why_absent));
      then(source_(request));
    });
  }
  wake_.notify_one();
  return true;
}

bool dashboard_watcher::subscribe(const std::shared_ptr<http_reply>& reader) {
  std::uint64_t id = 0;
  {
    const std::lock_guard hold{mutex_};
    if (readers_.size() >= max_readers) return false;
    // Under the lock, with the first event: publish() must not send a newer view before it.
    id = next_reader_++;
    readers_.emplace(id, reader);
    reader->begin_stream({200, "text/event-stream", {}, {{"X-Content-Type-Options", "nosniff"}}});
    reader->piece(event(*view_));
  }
  reader->when_gone([this, id] {
    const std::lock_guard hold{mutex_};
    readers_.erase(id);
  });
  return true;
}

// One question is answered between two looks at most, and looks keep their pace: a browser that
// asks without pause can delay the next look by one question only.
void dashboard_watcher::run() {
  double next_s = clock_.now_s();
  std::unique_lock lock{mutex_};
  while (!ends_) {
    if (!questions_.empty()) {
      const auto question = std::move(questions_.front());
      questions_.pop_front();
      lock.unlock();
      question();
      lock.lock();
    }
    const double wait_s = next_s - clock_.now_s();
    if (wait_s <= 0) {
      lock.unlock();
      look();
      // After a slow look (a controller that does not answer takes the whole patience) the missed
      // ones are not made up for, and half an interval is left to questions.
      next_s = std::max(next_s + every_s_, clock_.now_s() + every_s_ / 2);
      lock.lock();
      continue;
    }
    wake_.wait_for(lock, std::chrono::duration<double>(wait_s),
                   [this] { return ends_ || !questions_.empty(); });
  }
}

void dashboard_watcher::look() {
  auto next = std::make_shared<view>();
  auto all = all_jobs([this](const query_jobs& q) -> expected<query_reply> {
    auto reply = source_(q);
    if (!reply) return refuse(reply.error());
    if (auto* page = std::get_if<query_reply>(&*reply)) return std::move(*page);
    return refuse(reason::kind::malformed, "unexpected type of answer from the controller");
  });
  if (!all) {
    next->why_absent = all.error().text;
    // The view keeps nothing of the cluster: metrics without a source must vanish, and the page
    // shows what it has as stale.
    next->absent_s = clock_.now_s() - last_answer_s_;
    return publish(std::move(next));
  }
  last_answer_s_ = clock_.now_s();
  auto known = std::make_shared<cluster_facts>();
  known->now = std::move(*all);
  ended_.look_at(known->now);
  known->ended = ended_.by_why();
  // Not about a job: the view alone.
  // Asked apart: a reply about all jobs leaves the view out.
  const auto about = source_(query_jobs{0, std::numeric_limits<job_id>::max(), true});
  if (const auto* one = about ? std::get_if<query_reply>(&*about) : nullptr)
    known->now.view = one->view;
  look_at_trainings(*known, *next);
  next->links = dashboard_json::links(known->now, before_ ? &before_->now : nullptr);
  next->known = before_ = known;
  publish(std::move(next));
}

void dashboard_watcher::look_at_trainings(cluster_facts& to, view& next) {
  const auto last = now();
  std::size_t count = 0;
  for (const auto& j : to.now.jobs) {
    if (!holds_gpus(j) || has_processes(j) || ++count > max_trainings) continue;
    // Only iterations after this position are sent; 0: the whole history, of which the newest is
    // kept.
    const auto position = last->positions.find(j.job);
    const std::uint64_t after = position == last->positions.end() ? 0 : position->second;
    auto reply = source_(query_training{0, j.job, after});
    auto* how = reply ? std::get_if<training_reply>(&*reply) : nullptr;
    if (!how || !how->why.text.empty()) continue;
    const auto* known =
        before_ && before_->trainings.contains(j.job) ? &before_->trainings.at(j.job) : nullptr;
    next.positions[j.job] = how->position;
    to.trainings.emplace(j.job, merged(known, std::move(how->report)));
  }
}

void dashboard_watcher::publish(std::shared_ptr<const view> next) {
  // Formatted once for all subscribers, and before the lock.
  const auto text = event(*next);
  const std::lock_guard hold{mutex_};
  view_ = std::move(next);
  for (const auto& [id, reader] : readers_) reader->piece(text);
}

// A whole view per event, not a difference: a page that was asleep needs only the newest.
std::string dashboard_watcher::event(const view& v) const {
  auto text =
      fmt::format(R"(data: {{"source":{})", dashboard_json::source(v.why_absent, v.absent_s));
  if (v.known)
    text += fmt::format(R"(,"cluster":{},"jobs":{},"links":{},"serving":{})",
                        dashboard_json::cluster(v.known->now), dashboard_json::jobs(v.known->now),
                        v.links, dashboard_json::serving(v.known->now));
  return text + "}\n\n";
}

}  // namespace troupe::web
