#include "processes/shared_cluster.hpp"
#include "text/tokens/open_tokenizer.hpp"

#include <csignal>

#include <algorithm>

#include "cli/verbs/serving/remote_completion.hpp"
#include "gpu/inference/generate.hpp"
#include "harness/source_dir.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::test {

namespace {

constexpr std::uint32_t new_tokens = 12;

/// Another one each time, from its first word on, of one of four lengths.
std::string next_prompt() {
  static std::atomic<std::uint64_t> asked{0};
  const auto n = asked++;
  return fmt::format("{}: The President of the United States shall, from time to time, give {}", n,
                     std::string(20 * (n % 4), 'x'));
}

/// A model that completes prompts in this process, as `troupe infer --alone` does.
class model_alone {
 public:
  explicit model_alone(const std::string& folder) {
    auto model = gpu::read_inference_model(folder);
    REQUIRE(model);
    model_ = std::move(*model);
    auto words = gpu::open_tokenizer(folder, model_.vocabulary);
    REQUIRE(words);
    words_ = std::move(*words);
    auto spec = gpu::whole_model(model_, gpu::pages_for(model_.positions));
    spec.weights = folder;
    auto device = gpu::make_cpu_inference_device(spec);
    REQUIRE(device);
    device_ = std::move(*device);
  }

  std::vector<std::uint32_t> tokens_after(const std::string& prompt) const {
    gpu::generation g;
    g.prompt = words_->encode_prompt(prompt);
    g.what.prompt_tokens = static_cast<std::uint32_t>(g.prompt.size());
    g.what.max_tokens = new_tokens;
    g.what.how.temperature = 0;
    g.what.last_tokens = model_.last_tokens;
    gpu::completion text{g.what, {}, words_.get()};
    REQUIRE(gpu::generate(*device_, g, text));
    return text.tokens();
  }

 private:
  gpu::inference_model model_;
  std::unique_ptr<gpu::tokenizer> words_;
  std::unique_ptr<gpu::inference_device> device_;
};

}  // namespace

void tally::decline(const std::string& why) {
  const std::lock_guard hold{guard_};
  ++declined_[why];
}

std::string tally::declined() const {
  const std::lock_guard hold{guard_};
  std::string all;
  for (const auto& [why, times] : declined_) all += fmt::format("{} x {}; ", times, why);
  return all;
}

clients::clients(const std::string& url, std::uint64_t count, double every_s) {
  for (std::uint64_t c = 0; c < count; ++c)
    threads_.emplace_back([this, url, every_s] {
      while (!over_) {
        const runtime::stopwatch since;
        ask(url);
        if (since.s() < every_s) runtime::pause(every_s - since.s());
      }
    });
}

void clients::stop() {
  over_ = true;
  for (auto& t : threads_) t.join();
  threads_.clear();
}

// The model computes here when the clients are through: it would take processors from the bubbles.
void clients::end() {
  stop();
  if (answers_.empty()) return;
  const model_alone model{test::shipped("models/scribe").string()};
  for (const auto& [prompt, tokens] : answers_) of.wrong += tokens != model.tokens_after(prompt);
  answers_.clear();
}

bool clients::go_on(std::size_t more, double limit_s) const {
  const auto before = of.answered.load();
  return runtime::wait_until([&] { return of.answered >= before + more; }, limit_s, 0.01);
}

void clients::ask(const std::string& url) {
  cli::remote_prompt p;
  p.url = url;
  p.text = next_prompt();
  p.what.max_tokens = new_tokens;
  p.what.how.temperature = 0;
  const auto made = cli::complete_remotely(p, [](std::string_view) {});
  if (!made) {
    ++of.failed;
    of.refused += made.error().code != reason::kind::unavailable;
    return;
  }
  ++of.answered;
  {
    const std::lock_guard hold{guard_};
    answers_[p.text] = made->at("tokens").get<std::vector<std::uint32_t>>();
  }
  const auto& where = made->at("where");
  of.bubbles += where.at("prefill") == "bubbles";
  if (const auto& why = where.at("declined"); why.is_string()) of.decline(why);
  of.again += where.at("attempts").get<int>() > 1;
  of.two_guests += where.at("guests") == 2;
}

lending_cluster::lending_cluster(const std::function<void(job_spec&)>& change)
    : fixture{
          "bubbles",
          fs::path{troupe::test::source_dir()} / "tests/processes/clusters/beside-training.yaml",
          cli::default_policy} {
  REQUIRE(cluster->wait_until_ready(long_s));
  auto decoder = formats::load_job(shipped("jobs/serve-scribe.yaml"));
  REQUIRE(decoder);
  for (const auto* gpu : {"L4", "A10"}) {
    decoder->limits.required_gpu_type = gpu;
    submit(*decoder);
  }
  REQUIRE(wait_until([](const query_reply& r) {
    return std::ranges::all_of(r.jobs, [](const auto& j) { return j.started_s > 0; });
  }));
  auto t = formats::load_job(shipped("jobs/train-lends.yaml"));
  REQUIRE(t);
  t->iterations = 1'000'000;
  t->train->checkpoint = (state / "checkpoint").string();
  t->train->checkpoint_every = 100;
  if (change) change(*t);
  training = submit(*t);
  REQUIRE(trains_on(40));
  url = cluster->fronts().at("front-1");
}

job_status lending_cluster::status() {
  const auto all = jobs();
  return *std::ranges::find(all.jobs, training, &job_status::job);
}

bool lending_cluster::trains_on(std::uint64_t more) {
  const auto before = status().iteration;
  return runtime::wait_until([&] { return status().iteration >= before + more; }, long_s, 0.1);
}

std::string lending_cluster::node_of_stage(std::size_t n) {
  const auto all = jobs();
  const auto at = std::ranges::find(all.jobs, training, &job_status::job);
  return all.nodes.at(at->where.at(n).node).name;
}

void lending_cluster::stop_for(const std::string& name, double s) {
  const auto process = cluster->id(name);
  ::kill(process, SIGSTOP);
  runtime::pause(s);
  ::kill(process, SIGCONT);
}

}  // namespace troupe::test
