#include "studies/trace_player.hpp"

#include <algorithm>
#include <utility>

#include "planners/bubbletea/prefill_packing.hpp"

namespace troupe::studies {

namespace {

using ending = played_request::ending;

/// A saturated run replaces a declined request after this time only: in virtual time it could
/// otherwise decline requests forever at one moment.
constexpr double offer_again_s = 0.01;

/// The key of the decline that a sentence names; empty: it names none.
std::string key_of_decline(const std::string& text) {
  for (std::size_t i = 0; i <= planners::decline_reasons; ++i) {
    const auto key = i < planners::decline_reasons
                         ? to_string(static_cast<planners::decline_reason>(i))
                         : paused_by_delay_budget;
    if (text.find(key) != std::string::npos) return std::string{key};
  }
  return {};
}

}  // namespace

trace_player::trace_player(prefill_study study, world w)
    : o_{std::move(study.play)},
      prompts_{std::move(study.prompts)},
      world_{std::move(w)},
      random_{o_.seed ^ 0x7ace5ULL},
      open_at_(world_.fronts) {}

bool trace_player::ready() const {
  for (std::size_t f = 0; f < world_.fronts; ++f) {
    const auto models = world_.front(f).view().models;
    const auto m = models.find(o_.model);
    if (m == models.end() || m->second.decoders < world_.fronts) return false;
  }
  return true;
}

std::uint64_t trace_player::pages_reserved() const {
  const auto models = world_.front(0).view().models;
  const auto m = models.find(o_.model);
  return m == models.end() ? 0 : m->second.pages - m->second.free_pages;
}

void trace_player::begin() {
  began_s_ = world_.now_s();
  o_.saturated > 0 ? saturate() : schedule_next();
}

// One call per prompt is pending at a time: the whole trace in advance would fill the world's
// queue.
void trace_player::schedule_next() {
  if (next_ == prompts_.size()) over_ = true;
  if (over_) return;
  const double at_s = began_s_ + prompts_[next_].arrival_s / o_.rate;
  world_.at(std::max(at_s, world_.now_s()), [this] {
    if (over_) return;
    const auto& p = prompts_[next_++];
    if (!paused_) offer(p, requests_.size() % world_.fronts);
    schedule_next();
  });
}

void trace_player::saturate() {
  // The front with the fewest open requests is next. Taking turns would give a slow front as many
  // as the others, which would then have nothing to do.
  while (!over_ && !paused_ && open_ < o_.saturated) {
    const auto fewest = std::ranges::min_element(open_at_) - open_at_.begin();
    offer(prompts_[next_++ % prompts_.size()], static_cast<std::size_t>(fewest));
  }
}

void trace_player::resume() {
  paused_ = false;
  if (o_.saturated > 0) saturate();
}

void trace_player::offer(const traced_prompt& p, std::size_t front) {
  const auto index = requests_.size();
  auto& r = requests_.emplace_back();
  r.front = front;
  r.prompt_tokens = std::max(1u, p.prompt_tokens);
  r.arrived_s = world_.now_s();
  ++open_;
  ++open_at_[front];
  actors::model_prompt asked;
  asked.model = o_.model;
  asked.what.prompt_tokens = r.prompt_tokens;
  asked.what.max_tokens = o_.saturated > 0 ? 1 : std::max(1u, p.generated_tokens);
  asked.what.ttft_s = o_.ttft_s;
  if (o_.vocabulary > 0) asked.tokens.resize(r.prompt_tokens);
  for (auto& t : asked.tokens) t = static_cast<std::uint32_t>(random_.below(o_.vocabulary));
  // The listener may be called before submit() returns, and `requests_` may grow: `r` is not used
  // after this.
  const auto number = world_.front(front).submit(
      std::move(asked), [this, index](const actors::completion_update& n) {
        world_.run([this, index, n] { on_update(index, n); });
      });
  requests_[index].number = number;
  // Drawn after submit() whatever happened in it, so that the sequence of random numbers is the
  // same in both worlds.
  if (o_.cancels > 0 && random_.chance(o_.cancels)) cancel_later(index);
}

void trace_player::cancel_later(std::size_t index) {
  world_.at(world_.now_s() + random_.uniform() * o_.leaves_s, [this, index] {
    const auto& r = requests_[index];
    if (r.how != ending::open) return;
    world_.front(r.front).cancel(r.number);
    end(index, ending::cancelled);
  });
}

void trace_player::on_update(std::size_t index, const actors::completion_update& n) {
  auto& r = requests_[index];
  if (r.how == ending::cancelled) return;  // its last updates may still arrive
  if (n.where) r.where = *n.where;
  if (!n.tokens.empty() && r.tokens == 0) r.first_token_s = world_.now_s();
  r.tokens += static_cast<std::uint32_t>(n.tokens.size());
  r.attempts = n.attempts;
  if (n.finish == generated::ending::none) return;
  r.why = n.why;
  if (n.finish != generated::ending::failed) return end(index, ending::served);
  // A front that tried several decoders reports their reasons in its own sentence.
  if (auto key = key_of_decline(n.why.text); !key.empty()) {
    r.why.text = std::move(key);
    return end(index, ending::declined);
  }
  end(index, n.why.code == reason::kind::insufficient ? ending::declined : ending::failed);
}

void trace_player::end(std::size_t index, ending how) {
  auto& r = requests_[index];
  if (++r.ends > 1) return;  // an error of the front, which `ends` shows
  r.how = how;
  r.ended_s = world_.now_s();
  --open_;
  --open_at_[r.front];
  if (o_.saturated == 0 || over_) return;
  if (how == ending::served)
    saturate();
  else
    world_.at(world_.now_s() + offer_again_s, [this] { saturate(); });
}

}  // namespace troupe::studies
