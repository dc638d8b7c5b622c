#include "cli/verbs/serving/front_generator.hpp"

#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace troupe::cli {

struct front_generator::lifetime {
  std::mutex mutex;
  bool over = false;
};

/// What a front tells of one sequence, as steps with text. Used on the front's thread.
class front_generator::sequence {
 public:
  sequence(const submission& s, actors::completions front, shared_cluster c,
           std::shared_ptr<const gpu::tokenizer> words)
      : front_{std::move(front)},
        cluster_{std::move(c)},
        words_{std::move(words)},
        listener_{s.listener},
        text_{s.request.limits, words_.get()} {}

  void hear(const actors::completion_news& n) {
    if (over_) return;
    if (n.where) prefill_ = *n.where;
    for (const auto& t : n.tokens) {
      add(t, n);
      if (!over_) continue;
      // A stop text: its decoder does not know it.
      if (n.finish == generated::ending::none) front_.cancel(n.number, true);
      return;
    }
    if (n.finish == generated::ending::none) return;
    const reason early{reason::kind::unavailable, "its decoder has ended it too early"};
    fail(n.finish == generated::ending::failed ? n.why : early);
  }

 private:
  void add(const generated_token& t, const actors::completion_news& n) {
    web::sequence_step step;
    step.text = text_.add({t.chosen.token, t.chosen.log_probability});
    step.token = t.chosen.token;
    step.log_probability = t.chosen.log_probability;
    for (const auto& o : t.top) step.top.push_back({o.token, o.log_probability});
    step.finished = text_.finished();
    over_ = step.finished != gpu::completion::finish::none;
    if (over_ || text_.tokens().size() == 1) step.place = place_of(n);
    listener_(step);
  }

  void fail(const reason& why) {
    over_ = true;
    web::sequence_step step;
    step.failed = &why;
    listener_(step);
  }

  web::sequence_place place_of(const actors::completion_news& n) const {
    return {prefill_.bubbles,
            prefill_.guests,
            prefill_.yields,
            prefill_.declined.text,
            host_name(*cluster_, n.decoder),
            n.attempts,
            prefill_.promised_s,
            prefill_.prefill_s,
            prefill_.transfer_s};
  }

  const actors::completions front_;
  const shared_cluster cluster_;
  const std::shared_ptr<const gpu::tokenizer> words_;
  const web::sequence_listener listener_;
  gpu::completion text_;
  prefill_place prefill_;
  bool over_ = false;
};

front_generator::front_generator(actors::completions front, shared_cluster c, std::string model,
                                 std::shared_ptr<const gpu::tokenizer> words)
    : front_{std::move(front)},
      cluster_{std::move(c)},
      model_{std::move(model)},
      words_{std::move(words)},
      lifetime_{std::make_shared<lifetime>()} {}

front_generator::~front_generator() {
  const std::lock_guard hold{lifetime_->mutex};
  lifetime_->over = true;
}

expected<std::vector<std::uint64_t>> front_generator::submit(std::vector<submission> all) {
  if (auto ok = check(all); !ok) return refuse(ok.error());
  std::vector<std::uint64_t> numbers;
  for (auto& s : all) numbers.push_back(begin(std::move(s)));
  return numbers;
}

/// By what the decoders have said last; they decide by themselves.
expected<void> front_generator::check(const std::vector<submission>& all) const {
  const auto view = front_.view();
  const auto at = view.models.find(model_);
  if (at == view.models.end())
    return refuse(reason::kind::unavailable, fmt::format("no decoder serves '{}'", model_));
  const auto& m = at->second;
  for (const auto& s : all)
    if (const auto n = s.request.prompt.size() + s.request.limits.max_tokens; n > m.context)
      return refuse(reason::kind::invalid,
                    fmt::format("{} prompt tokens and {} new ones are more than the {} positions "
                                "of the decoders",
                                s.request.prompt.size(), s.request.limits.max_tokens, m.context));
  if (m.running + m.waiting + all.size() > m.most_sequences)
    return refuse(reason::kind::insufficient,
                  fmt::format("{} sequences are running or waiting, and {} are allowed",
                              m.running + m.waiting, m.most_sequences));
  return {};
}

std::uint64_t front_generator::begin(submission s) {
  actors::completion_request r;
  r.model = model_;
  const auto& asked = s.request;
  r.how.prompt = static_cast<std::uint32_t>(asked.prompt.size());
  r.how.max_tokens = asked.limits.max_tokens;
  r.how.last_tokens = asked.limits.last_tokens;
  r.how.temperature = asked.how.temperature;
  r.how.top_p = asked.how.top_p;
  r.how.top_k = asked.how.top_k;
  r.how.seed = asked.how.seed;
  r.how.min_p = asked.how.min_p;
  r.how.frequency_penalty = asked.how.frequency_penalty;
  r.how.presence_penalty = asked.how.presence_penalty;
  for (const auto& b : asked.how.bias) r.how.bias.push_back({b.token, b.bias});
  r.how.top = asked.top;
  r.how.ttft_s = asked.ttft_s;
  r.how.priority = asked.priority;
  const auto one = std::make_shared<sequence>(s, front_, cluster_, words_);
  r.prompt = std::move(s.request.prompt);
  return front_.submit(std::move(r), [one, life = lifetime_](const actors::completion_news& n) {
    const std::lock_guard hold{life->mutex};
    if (!life->over) one->hear(n);
  });
}

void front_generator::cancel(const std::vector<std::uint64_t>& sequences) {
  for (const auto n : sequences) front_.cancel(n);
}

web::generator_state front_generator::state() const {
  const auto view = front_.view();
  const auto at = view.models.find(model_);
  if (at == view.models.end()) return {};
  const auto& m = at->second;
  return {m.pages - m.free_pages, m.free_pages, m.running, m.waiting, m.context};
}

}  // namespace troupe::cli
