#include "cli/verbs/studies/demo_parts.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "actors/control/ledger/training_history.hpp"
#include "cli/cluster/busy_machine.hpp"
#include "cli/cluster/local_cluster.hpp"
#include "cli/connection/controller_connection.hpp"
#include "cli/output/human.hpp"
#include "cli/reports/prefill_result.hpp"
#include "cli/verbs/serving/remote_completion.hpp"
#include "formats/load/load.hpp"
#include "messages/base/statistics.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"
#include "studies/paired_windows.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

constexpr double serving_ready_s = 60;    // timeout of the cluster's start
constexpr double begun_s = 30;            // timeout of decoder and training
constexpr double window_s = 1.5;          // with prompts, and without
constexpr std::size_t windows = 8;        // of both kinds, in turns
constexpr std::size_t before = 12;        // prompts before there is a training
constexpr std::size_t shown = 5;          // prompts whose text is printed
constexpr std::uint64_t settled = 10;     // iterations before the first window
constexpr std::uint32_t new_tokens = 24;  // of each prompt

/// A prompt that was answered.
struct answered {
  std::string prompt, text;
  double ttft_s = 0;
  bool bubbles = false;
  std::string declined;
  std::uint64_t tokens = 0;  // of the prompt
};

/// A piece of the text that the model was trained on: whole words, 60 to 260 bytes. The stride is a
/// prime, so that consecutive prompts come from different places.
std::string prompt_of(const std::string& text, std::size_t number) {
  constexpr std::size_t shortest = 60, step = 40, lengths = 6, stride = 7919;
  const auto length = shortest + step * (number % lengths);
  const auto from = text.find_first_of(" \n", number * stride % (text.size() - 2 * length)) + 1;
  auto piece = text.substr(from, length);
  piece.resize(piece.find_last_of(" \n"));
  return piece;
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string last_of(const std::string& text, std::size_t n) {
  return text.size() <= n ? text : "..." + text.substr(text.size() - n + 3);
}

/// The steps in their order: the processes and a served model; prompts without a training; the
/// training; windows with and without prompts; the report. The model computes prompts by its
/// decoder before there are bubbles, so that the waits can be compared.
class demonstration {
 public:
  demonstration(const output& out, fs::path configs, const fs::path& directory)
      : out_{out}, configs_{std::move(configs)}, directory_{directory} {}

  expected<json> run() {
    if (auto ok = start(); !ok) return refuse(ok.error());
    for (std::size_t i = 0; i < before; ++i)
      if (auto ok = ask(alone_); !ok) return refuse(ok.error());
    if (auto ok = start_training(); !ok) return refuse(ok.error());
    for (std::size_t i = 0; i < windows; ++i)
      if (auto ok = pass_window(i % 2 == 1); !ok) return refuse(ok.error());
    if (auto ok = read_training(); !ok) return refuse(ok.error());
    lengths_with_ = studies::iteration_lengths(report_, windows_, true);
    lengths_alone_ = studies::iteration_lengths(report_, windows_, false);
    print();
    if (const auto busy = busy_text(cpu_time_of(*cluster_)); !busy.empty()) out_.line("  {}", busy);
    return document();
  }

 private:
  expected<void> start() {
    const auto data = configs_ / "data" / "founding.txt";
    std::ifstream in{data};
    text_.assign(std::istreambuf_iterator<char>{in}, {});
    if (text_.empty()) return refuse(reason::kind::unknown, data.string() + ": cannot be read");
    local_cluster_options o;
    o.emulated = true;
    o.cluster_file = (configs_ / "clusters" / "demo-serving.yaml").string();
    o.state = (directory_ / "serving").string();
    auto cluster = local_cluster::start(o);
    if (!cluster) return refuse(cluster.error());
    cluster_ = std::move(*cluster);
    if (auto ok = cluster_->wait_until_ready(serving_ready_s); !ok) return ok;
    out_.line(
        "\nA model that is served over HTTP beside a training, whose two stages lend their idle "
        "time to prompts:\n{} processes. Some of the prompts, and what the model adds to them:\n",
        cluster_->names().size());
    (void)flush_output();
    client_.set_controller(cluster_->controller_address());
    url_ = cluster_->fronts().begin()->second;
    if (auto ok = submit("serve-scribe.yaml"); !ok) return refuse(ok.error());
    const bool served = runtime::wait_until(
        [&] { return complete_remotely(prompt(0), [](auto) {}).has_value(); }, begun_s, 0.1);
    if (!served) return refuse(reason::kind::unavailable, "the model is not served in time");
    return {};
  }

  expected<job_id> submit(const char* file) {
    auto job = formats::load_job(configs_ / "jobs" / file);
    if (!job) return refuse(job.error());
    // The windows end the training, not its iterations.
    constexpr std::uint64_t endless = 1'000'000;
    if (job->train) job->iterations = endless;
    return client_.submit(*job);
  }

  /// Waits until its report has the first iterations. Then offers prompts until bubbles compute
  /// one: in the first windows the decoder would otherwise compute all of them.
  expected<void> start_training() {
    auto job = submit("train-lends.yaml");
    if (!job) return refuse(job.error());
    training_ = *job;
    const bool runs = runtime::wait_until(
        [&] {
          if (!read_training()) return false;
          return !report_.iterations.empty() && report_.iterations.back().iteration >= settled;
        },
        begun_s, 0.1);
    if (!runs) return refuse(reason::kind::unavailable, "the training has not begun in time");
    constexpr int tries = 20;
    std::vector<answered> first;
    for (int i = 0; i < tries && (first.empty() || !first.back().bubbles); ++i)
      if (auto ok = ask(first); !ok) return ok;
    return {};
  }

  /// One prompt after the other, or none; an open prompt extends a window, and its iterations still
  /// count as beside prompts.
  expected<void> pass_window(bool prompts) {
    const runtime::stopwatch since;
    const double begin_s = clock_.wall_s();
    if (!prompts) runtime::pause(window_s);
    while (prompts && since.s() < window_s)
      if (auto ok = ask(beside_); !ok) return ok;
    windows_.push_back({prompts, begin_s, clock_.wall_s()});
    return {};
  }

  remote_prompt prompt(std::size_t number) const {
    remote_prompt p;
    p.url = url_;
    p.text = prompt_of(text_, number);
    p.what.max_tokens = new_tokens;
    return p;
  }

  expected<void> ask(std::vector<answered>& to) {
    const auto p = prompt(asked_++);
    const auto d = complete_remotely(p, [](auto) {});
    if (!d) return refuse(d.error());
    const auto& where = d->at("where");
    to.push_back({p.text, d->at("text").get<std::string>(), 1e-3 * d->at("ttft_ms").get<double>(),
                  where.value("prefill", std::string{}) == "bubbles",
                  where.value("declined", json{}).is_string() ? where["declined"].get<std::string>()
                                                              : std::string{},
                  d->at("prompt_tokens").get<std::uint64_t>()});
    return {};
  }

  /// The controller sends what is new since `position_`.
  expected<void> read_training() {
    auto r = client_.ask<training_reply>(query_training{0, training_, position_});
    if (!r) return refuse(r.error());
    if (!r->why.text.empty()) return refuse(r->why);
    actors::append(report_, r->report);
    position_ = r->position;
    return {};
  }

  /// Times to first token of the prompts that bubbles computed, or that the decoder did.
  static std::vector<double> waits(const std::vector<answered>& of, bool bubbles) {
    std::vector<double> all;
    for (const auto& a : of)
      if (a.bubbles == bubbles) all.push_back(a.ttft_s);
    return all;
  }

  static std::string waited(const std::vector<double>& s) {
    return fmt::format("{} (at most {})", duration_text(statistics::median(s)),
                       duration_text(statistics::quantile(s, 1)));
  }

  void print() const {
    out_.line("  computed by  first token  prompt and answer");
    constexpr std::size_t columns = 36;
    for (std::size_t i = 0; i < std::min(shown, beside_.size()); ++i) {
      const auto& a = beside_[i];
      out_.line("  {:<11} {:>12}  {} | {}", a.bubbles ? "bubbles" : "decoder",
                duration_text(a.ttft_s), last_of(one_line(a.prompt), columns), one_line(a.text));
    }
    const auto in_bubbles = waits(beside_, true), by_decoder = waits(beside_, false);
    out_.line(
        "\n  Of {} prompts of {} to {} tokens, {} were computed in bubbles and {} by the decoder.",
        beside_.size(), tokens(false), tokens(true), in_bubbles.size(), by_decoder.size());
    out_.line("  What prompts wait for their first token, at the median:");
    if (!in_bubbles.empty()) out_.line("    in bubbles              {}", waited(in_bubbles));
    if (!by_decoder.empty()) out_.line("    by the decoder          {}", waited(by_decoder));
    out_.line("    without the training    {}", waited(waits(alone_, false)));
    print_cost();
  }

  void print_cost() const {
    const double with = statistics::median(lengths_with_),
                 alone = statistics::median(lengths_alone_);
    const auto used = report_.bubbles.value_or(bubble_use{});
    out_.line(
        "  What the training pays: an iteration takes {} at the median while prompts are answered, "
        "and {}\n  otherwise ({:.2f}x), decoder and front on the same cores included. Prefills "
        "delayed {} by {} in\n  all, at most {}, and took {} of its devices' idle time.",
        duration_text(with), duration_text(alone), alone > 0 ? with / alone : 0,
        counted(used.delayed_steps, "step"), duration_text(used.delay_s),
        duration_text(used.worst_delay_s), duration_text(used.guest_s));
  }

  /// The longest prompt's tokens, or the shortest one's.
  std::uint64_t tokens(bool max) const {
    std::uint64_t result = beside_.empty() ? 0 : beside_.front().tokens;
    for (const auto& a : beside_)
      result = max ? std::max(result, a.tokens) : std::min(result, a.tokens);
    return result;
  }

  json document() const {
    const auto times = [](const std::vector<double>& s) -> json {
      if (s.empty()) return {};
      return {{"count", s.size()},
              {"p50", 1e3 * statistics::median(s)},
              {"max", 1e3 * statistics::quantile(s, 1)}};
    };
    std::map<std::string, std::uint64_t> declined;
    for (const auto& a : beside_)
      if (!a.declined.empty()) ++declined[a.declined];
    const auto used = report_.bubbles.value_or(bubble_use{});
    json training{{"iterations_with", lengths_with_.size()},
                  {"iterations_without", lengths_alone_.size()},
                  {"iteration_s_with", statistics::median(lengths_with_)},
                  {"iteration_s_without", statistics::median(lengths_alone_)},
                  {"guest_steps", used.guest_steps},
                  {"guest_s", used.guest_s}};
    training.update(delays_document(used));
    return {{"prompts", beside_.size()},
            {"declined", declined},
            {"ttft_ms",
             {{"bubbles", times(waits(beside_, true))},
              {"decoder", times(waits(beside_, false))},
              {"without_training", times(waits(alone_, false))}}},
            {"training", training}};
  }

  const output& out_;
  const fs::path configs_, directory_;
  const runtime::real_clock clock_;
  std::unique_ptr<local_cluster> cluster_;
  remote client_;
  std::string text_, url_;
  std::size_t asked_ = 0;
  std::vector<answered> alone_, beside_;
  job_id training_ = 0;
  std::uint64_t position_ = 0;
  training_report report_;
  std::vector<studies::offer_window> windows_;
  std::vector<double> lengths_with_, lengths_alone_;  // of iterations, s
};

}  // namespace

expected<json> demo_serving(const output& out, const fs::path& configs, const fs::path& directory) {
  return demonstration{out, configs, directory}.run();
}

}  // namespace troupe::cli
