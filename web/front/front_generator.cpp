#include "web/front/front_generator.hpp"

#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "gpu/inference/completion_room.hpp"

namespace troupe::web {

struct front_generator::lifetime {
  std::mutex mutex;
  bool over = false;
};

/// A front's updates of one sequence as steps with text. Used on the front's thread.
class front_generator::sequence {
 public:
  sequence(const submission& s, actors::completions front, shared_cluster c,
           std::shared_ptr<const gpu::tokenizer> words)
      : front_{std::move(front)},
        cluster_{std::move(c)},
        words_{std::move(words)},
        listener_{s.listener},
        steps_{s, words_.get()} {}

  // Decoders know tokens only: a stop text ends the sequence here, and then there. A decoder that
  // ends before the text does has not kept its limits, which counts as its failure.
  void take(const actors::completion_update& n) {
    if (over_) return;
    if (n.where) prefill_ = *n.where;
    for (std::size_t i = 0; i < n.tokens.size(); ++i) {
      add(n.tokens[i], i < n.scored, n);
      if (!over_) continue;
      if (n.finish == generated::ending::none) front_.cancel(n.number, true);
      return;
    }
    if (n.finish == generated::ending::none) return;
    const reason early{reason::kind::unavailable, "its decoder has ended it too early"};
    fail(n.finish == generated::ending::failed ? n.why : early);
  }

 private:
  void add(const generated_token& t, bool of_prompt, const actors::completion_update& n) {
    auto step = steps_.next(t, of_prompt);
    over_ = step.finished != gpu::completion::finish::none;
    const bool first = std::exchange(is_first_, false);
    if (first) step.cached = prefill_.cached.value_or(0);
    if (over_ || first)
      step.place = sequence_place{prefill_, host_name(*cluster_, n.decoder), n.attempts};
    listener_(step);
  }

  // The last step: without a token.
  void fail(const reason& why) {
    over_ = true;
    listener_({{}, false, {}, gpu::completion::finish::none, &why});
  }

  const actors::completions front_;
  const shared_cluster cluster_;
  const std::shared_ptr<const gpu::tokenizer> words_;
  const sequence_listener listener_;
  sequence_steps steps_;
  prefill_place prefill_;
  bool is_first_ = true, over_ = false;
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

/// By the decoders' last reports, so that an overload is declined before anything is sent; each
/// decoder decides by itself. Sizes are not checked again: the service has done that, and decoders
/// do.
expected<void> front_generator::check(const std::vector<submission>& all) const {
  const auto view = front_.view();
  const auto at = view.models.find(model_);
  if (at == view.models.end())
    return refuse(reason::kind::unavailable, fmt::format("no decoder serves '{}'", model_));
  const auto& m = at->second;
  return gpu::check_sequences(m.running + m.waiting, all.size(), m.max_sequences);
}

// The listener may be called after this generator is gone: it shares the flag, and holds its lock
// during a call, which the destructor waits for.
std::uint64_t front_generator::begin(submission s) {
  const auto one = std::make_shared<sequence>(s, front_, cluster_, words_);
  return front_.submit({model_, std::move(s.what), std::move(s.prompt), std::move(s.adapter_name)},
                       [one, life = lifetime_](const actors::completion_update& n) {
                         const std::lock_guard hold{life->mutex};
                         if (!life->over) one->take(n);
                       });
}

void front_generator::cancel(const std::vector<std::uint64_t>& sequences) {
  for (const auto n : sequences) front_.cancel(n);
}

generator_state front_generator::state() const {
  const auto view = front_.view();
  const auto at = view.models.find(model_);
  if (at == view.models.end()) return {};
  const auto& m = at->second;
  return {m.pages - m.free_pages, m.free_pages, m.running,         m.waiting,      m.context,
          m.cached_pages,         m.set_back,   m.computed_prompt, m.cached_prompt};
}

}  // namespace troupe::web
