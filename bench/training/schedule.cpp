#include "training/schedule.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <future>
#include <mutex>
#include <optional>

#include "harness/clock.hpp"
#include "harness/tokens.hpp"

namespace troupe::bench {

namespace {

using gpu::operation;
using gpu::outcome;
namespace step = gpu::operations;

outcome must(expected<outcome> r) {
  if (r) return std::move(*r);
  fmt::print(stderr, "{}\n", r.error().text);
  std::exit(1);
}

payload sum_of(const payload& a, const payload& b) {
  std::vector<std::byte> bytes(a.bytes().size());
  const auto* x = reinterpret_cast<const float*>(a.bytes().data());
  const auto* y = reinterpret_cast<const float*>(b.bytes().data());
  auto* sum = reinterpret_cast<float*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) sum[i] = x[i] + y[i];
  return payload{std::move(bytes)};
}

}  // namespace

pipeline::pipeline(const model& m, std::uint32_t rows, const std::vector<std::uint32_t>& sublayers)
    : tokens_{random_tokens(1ull * rows * m.sequence, m.vocabulary, 1)},
      targets_{random_tokens(1ull * rows * m.sequence, m.vocabulary, 2)} {
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < sublayers.size(); ++i) {
    gpu::stage_spec s;
    s.model = m;
    s.first_sublayer = first;
    s.sublayers = sublayers[i];
    s.has_embedding = i == 0;
    s.has_head = i + 1 == sublayers.size();
    s.rows = rows;
    first += sublayers[i];
    auto d = gpu::make_cpu_device(s);
    if (!d) {
      fmt::print(stderr, "{}\n", d.error().text);
      std::exit(1);
    }
    specs_.push_back(s);
    stages_.push_back(std::move(*d));
  }
}

/// State of one iteration. Devices post completions; the caller's thread submits the next
/// operations.
struct pipeline::running {
  struct stage {
    std::vector<std::pair<bool, std::uint32_t>> order;  // forward? micro-batch
    std::size_t next = 0;
    bool busy = false;
    std::vector<std::optional<payload>> activations, gradients;  // that came, by micro-batch
  };
  struct event {
    std::size_t stage = 0;
    bool forward = true;
    std::uint32_t microbatch = 0;
    outcome result;
  };

  pipeline& p;
  std::vector<stage> stages;
  iteration_time& time;
  std::mutex guard;
  std::condition_variable wake;
  std::deque<event> events;

  running(pipeline& of, std::uint32_t microbatches, iteration_time& t) : p{of}, time{t} {
    const auto count = static_cast<std::uint32_t>(p.stages_.size());
    for (std::uint32_t i = 0; i < count; ++i) {
      auto& s = stages.emplace_back();
      s.activations.resize(microbatches);
      s.gradients.resize(microbatches);
      const auto ahead = std::min(microbatches, count - i - 1);
      for (std::uint32_t f = 0; f < ahead; ++f) s.order.emplace_back(true, f);
      for (std::uint32_t f = ahead; f < microbatches + ahead; ++f) {
        if (f < microbatches) s.order.emplace_back(true, f);
        s.order.emplace_back(false, f - ahead);
      }
    }
  }

  bool hand_out(std::size_t i) {
    auto& s = stages[i];
    if (s.busy || s.next == s.order.size()) return false;
    const auto [forward, m] = s.order[s.next];
    const bool first = p.specs_[i].has_embedding, last = p.specs_[i].has_head;
    operation o;
    if (forward) {
      if (!first && !s.activations[m]) return false;
      o.what = step::forward{m, true, first ? p.tokens_ : *s.activations[m],
                             last ? p.targets_ : payload{}};
      s.activations[m].reset();
    } else {
      if (!last && !s.gradients[m]) return false;
      o.what = step::backward{m, last ? payload{} : *std::exchange(s.gradients[m], std::nullopt)};
    }
    s.busy = true;
    ++s.next;
    p.stages_[i]->submit(std::move(o), [this, i, forward = forward, m = m](expected<outcome> r) {
      const std::lock_guard lock{guard};
      events.push_back({i, forward, m, must(std::move(r))});
      wake.notify_one();
    });
    return true;
  }

  void take(event e) {
    stages[e.stage].busy = false;
    time.busy_s[e.stage] += e.result.end_s - e.result.begin_s;
    if (e.forward && e.stage + 1 < stages.size())
      stages[e.stage + 1].activations[e.microbatch] = e.result.of<step::forward>().activation;
    if (!e.forward && e.stage > 0)
      stages[e.stage - 1].gradients[e.microbatch] = e.result.of<step::backward>().gradient;
  }

  void all() {
    for (;;) {
      bool any = false;
      for (std::size_t i = 0; i < stages.size(); ++i) {
        hand_out(i);
        any = any || stages[i].busy;
      }
      if (!any) return;
      std::unique_lock lock{guard};
      wake.wait(lock, [this] { return !events.empty(); });
      auto e = std::move(events.front());
      events.pop_front();
      lock.unlock();
      take(std::move(e));
    }
  }
};

void pipeline::update(std::uint32_t microbatches, iteration_time& t) {
  const auto all = [&](const auto& operation_of) {
    std::vector<std::promise<outcome>> promises(stages_.size());
    for (std::size_t i = 0; i < stages_.size(); ++i)
      stages_[i]->submit(operation_of(i), [&promises, i](expected<outcome> r) {
        promises[i].set_value(must(std::move(r)));
      });
    std::vector<outcome> results;
    for (auto& p : promises) results.push_back(p.get_future().get());
    for (std::size_t i = 0; i < results.size(); ++i)
      t.busy_s[i] += results[i].end_s - results[i].begin_s;
    return results;
  };
  std::vector<outcome> sums;
  payload tied;
  if (stages_.size() > 1) {
    sums = all([](std::size_t) { return operation{step::gradients{}}; });
    tied = sum_of(sums.front().of<step::gradients>().tied, sums.back().of<step::gradients>().tied);
  }
  all([&](std::size_t i) {
    step::update u{.scale = 1.0 / microbatches};
    if (!sums.empty())
      u.sums = {sums[i].of<step::gradients>().own,
                specs_[i].has_embedding || specs_[i].has_head ? tied : payload{}};
    return operation{u};
  });
}

iteration_time pipeline::iterate(std::uint32_t microbatches) {
  iteration_time t;
  t.busy_s.resize(stages_.size());
  const double wall = clock_s(CLOCK_MONOTONIC), processor = clock_s(CLOCK_PROCESS_CPUTIME_ID);
  running{*this, microbatches, t}.all();
  update(microbatches, t);
  t.wall_s = clock_s(CLOCK_MONOTONIC) - wall;
  t.processor_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - processor;
  return t;
}

}  // namespace troupe::bench
