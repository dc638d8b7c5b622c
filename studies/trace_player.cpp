#include "studies/trace_player.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "planners/bubbletea/prefill_packing.hpp"

namespace troupe::studies {

namespace {

/// Declined ones are replaced only then, lest a saturated run decline forever at one moment.
constexpr double offer_again_s = 0.01;

/// The key of the decline that a sentence names; empty: it names none.
std::string key_of_decline(const std::string& text) {
  for (std::size_t i = 0; i < planners::decline_reasons; ++i) {
    const auto key = to_string(static_cast<planners::decline_reason>(i));
    if (text.find(key) != std::string::npos) return std::string{key};
  }
  return std::string{text.find(paused_by_delay_budget) == std::string::npos
                         ? std::string_view{}
                         : paused_by_delay_budget};
}

}  // namespace

trace_player::trace_player(trace_options o, std::vector<traced_prompt> prompts,
                           std::vector<front_door> fronts, clock world)
    : o_{std::move(o)},
      prompts_{std::move(prompts)},
      fronts_{std::move(fronts)},
      world_{std::move(world)},
      random_{o_.seed ^ 0x7ace5ULL},
      open_at_(fronts_.size()) {}

void trace_player::begin() {
  began_s_ = world_.now_s();
  o_.saturated > 0 ? saturate() : schedule_next();
}

void trace_player::schedule_next() {
  if (next_ == prompts_.size()) over_ = true;
  if (over_) return;
  const double at_s = began_s_ + prompts_[next_].arrival_s / o_.rate;
  world_.at(std::max(at_s, world_.now_s()), [this] { offer_next(); });
}

void trace_player::offer_next() {
  if (over_) return;
  const auto& p = prompts_[next_++];
  if (!paused_) offer(p, requests_.size() % fronts_.size());
  schedule_next();
}

void trace_player::saturate() {
  // In turn, a slow front would get as many as the others, and these would have nothing to do.
  while (!over_ && !paused_ && open_ < o_.saturated) {
    const auto min = std::ranges::min_element(open_at_) - open_at_.begin();
    offer(prompts_[next_++ % prompts_.size()], static_cast<std::size_t>(min));
  }
}

void trace_player::resume() {
  paused_ = false;
  if (o_.saturated > 0) saturate();
}

std::vector<std::uint32_t> trace_player::random_prompt(std::uint32_t tokens) {
  std::vector<std::uint32_t> all(tokens);
  for (auto& t : all) t = static_cast<std::uint32_t>(random_.below(o_.vocabulary));
  return all;
}

void trace_player::offer(const traced_prompt& p, std::size_t front) {
  const auto index = requests_.size();
  auto& r = requests_.emplace_back();
  r.front = front;
  r.prompt_tokens = std::max(1u, p.prompt_tokens);
  r.arrived_s = world_.now_s();
  ++open_;
  ++open_at_[front];
  model_prompt asked;
  asked.model = o_.model;
  asked.what.prompt_tokens = r.prompt_tokens;
  asked.what.max_tokens = o_.saturated > 0 ? 1 : std::max(1u, p.generated_tokens);
  asked.what.ttft_s = o_.ttft_s;
  if (o_.vocabulary > 0) asked.tokens = random_prompt(r.prompt_tokens);
  // The listener may be called at once, and `requests_` may grow: no reference is held.
  const auto number = fronts_[front].submit(
      std::move(asked), [this, index](const completion_update& n) { on_update(index, n); });
  requests_[index].number = number;
  if (o_.cancels > 0 && random_.chance(o_.cancels)) leave_later(index);
}

void trace_player::leave_later(std::size_t index) {
  world_.at(world_.now_s() + random_.uniform() * o_.leaves_s, [this, index] {
    const auto& r = requests_[index];
    if (r.how != played_request::ending::open) return;
    fronts_[r.front].cancel(r.number);
    end(index, played_request::ending::cancelled);
  });
}

void trace_player::on_update(std::size_t index, const completion_update& n) {
  using ending = played_request::ending;
  auto& r = requests_[index];
  if (r.how == ending::cancelled) return;  // a front may still speak for a moment
  if (n.where) r.where = *n.where;
  if (!n.tokens.empty() && r.tokens == 0) r.first_token_s = world_.now_s();
  r.tokens += static_cast<std::uint32_t>(n.tokens.size());
  r.attempts = n.attempts;
  if (n.finish == generated::ending::none) return;
  r.why = n.why;
  if (n.finish != generated::ending::failed) return end(index, ending::served);
  // A front that has asked several decoders says so.
  if (auto key = key_of_decline(n.why.text); !key.empty()) {
    r.why.text = std::move(key);
    return end(index, ending::declined);
  }
  end(index, n.why.code == reason::kind::insufficient ? ending::declined : ending::failed);
}

void trace_player::end(std::size_t index, played_request::ending how) {
  auto& r = requests_[index];
  if (++r.ends > 1) return;
  r.how = how;
  r.ended_s = world_.now_s();
  --open_;
  --open_at_[r.front];
  if (o_.saturated == 0 || over_) return;
  if (how == played_request::ending::served)
    saturate();
  else
    world_.at(world_.now_s() + offer_again_s, [this] { saturate(); });
}

}  // namespace troupe::studies
