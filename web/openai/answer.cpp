#include "web/openai/answer.hpp"

#include <utility>

namespace troupe::web {

outcome outcome_of(const openai::problem& p) {
  if (p.status == 429) return outcome::declined;
  return p.status < 500 ? outcome::invalid : outcome::failed;
}

http_fields fields_of(const openai::problem& p) {
  if (p.status == 415) return {{"Accept-Encoding", "identity"}};
  if (p.status != 429 && p.status != 503) return {};
  return {{"Retry-After", "1"}};
}

http_answer answer_of(const openai::problem& p, http_fields fields) {
  return {p.status, "application/json", openai::to_json(p), std::move(fields)};
}

namespace {

http_answer stream_head(http_fields fields) {
  return {200, "text/event-stream", {}, std::move(fields)};
}

}  // namespace

// A prompt that is echoed with log probabilities begins with a token that has none: nothing is
// before it.
answer::answer(question asked, std::shared_ptr<const gpu::tokenizer> words,
               std::shared_ptr<http_reply> reply, metrics& counted, const runtime::clock& clock)
    : asked_{std::move(asked)},
      words_{std::move(words)},
      reply_{std::move(reply)},
      metrics_{counted},
      clock_{clock},
      begin_s_{clock.now_s()},
      choices_(asked_.prefixes.size()),
      left_{choices_.size()} {
  if (asked_.stream) reply_->promise_stream(stream_head({}));
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    auto& c = choices_[i].choice;
    c.index = i;
    const auto& before = asked_.prefixes[i];
    c.text = before.text;
    if (asked_.log_probabilities) c.tokens.emplace();
    if (c.tokens && before.first) c.tokens->push_back({named({*before.first, 0}), {}, true});
    if (asked_.token_numbers) c.token_numbers.emplace();
  }
}

// The choices of a request are separate sequences, whose tokens come on one thread in any order. A
// failure of one of them ends the whole answer, since an HTTP answer has one status; nothing is
// counted after it. Scored tokens of a prompt are text already, and are sent with the first
// generated one.
void answer::step(std::uint32_t index, const sequence_step& s) {
  if (failed_) return;
  if (s.failed) return fail(*s.failed);
  auto& c = choices_[index];
  if (!s.of_prompt) measure(c, s);
  c.choice.text += s.text;
  c.choice.finish_reason = gpu::name_of(s.finished);
  if (c.choice.tokens) c.choice.tokens->push_back(token_of(s.token));
  if (c.choice.token_numbers && !s.of_prompt)
    c.choice.token_numbers->push_back(s.token.chosen.token);
  c.cached += s.cached;
  take_place(c.choice, s);
  const bool ends = s.finished != gpu::completion::finish::none;
  // A stream's first event has the whole prompt.
  if (asked_.stream && (!s.of_prompt || ends)) send(c, ends);
  if (!ends) return;
  metrics_.choice_ended(s.place ? s.place->attempts : 1);
  if (--left_ == 0) finish();
}

// Such a choice has its prompt at most, and is finished by its length.
void answer::end(std::uint32_t index) {
  auto& c = choices_[index];
  c.choice.finish_reason = gpu::name_of(gpu::completion::finish::length);
  if (asked_.stream) send(c, true);
  metrics_.choice_ended(1);
  if (--left_ == 0) finish();
}

/// The header names the place of the first prompt; each choice's last part has the details.
void answer::take_place(openai::choice& c, const sequence_step& s) {
  if (!s.place) return;
  if (fields_.empty())
    fields_.emplace_back("X-Troupe-Where", s.place->prefill.bubbles ? "bubbles" : "decoder");
  if (!asked_.stream || s.finished != gpu::completion::finish::none) c.place = s.place;
}

// A client may leave while its last token comes on another thread: the first outcome counts.
void answer::count(outcome o) {
  if (!counted_.exchange(true)) metrics_.count(o, asked_.head.model);
}

// Tokens of the completion only: the prompt's have no latency of their own.
void answer::measure(one& c, const sequence_step& s) {
  const auto now_s = clock_.now_s();
  const bool first = c.tokens++ == 0;
  first ? metrics_.first_token(now_s - begin_s_) : metrics_.next_token(now_s - c.last_s);
  c.last_s = now_s;
  if (first && s.place) metrics_.prefilled(*s.place);
}

// A token as it is written, also where it has no text: special tokens have names.
openai::token_choice::token answer::named(const weighed_token& t) const {
  return {t.token, words_ ? words_->written(t.token) : std::string{}, t.log_probability};
}

openai::token_choice answer::token_of(const generated_token& t) const {
  openai::token_choice c{named(t.chosen), {}, false};
  for (const auto& o : t.top) c.top.push_back(named(o));
  return c;
}

/// A stream's choice has only what is new; then it is empty.
void answer::send(one& c, bool ends) {
  begin_stream();
  auto& choice = c.choice;
  std::string events;
  if (asked_.head.chat && ends && (!choice.text.empty() || choice.tokens || choice.token_numbers)) {
    // The end of a chat's choice is an event of its own, without text.
    const auto reason_for = std::exchange(choice.finish_reason, {});
    const auto place = std::exchange(choice.place, {});
    events += openai::choice_event(asked_.head, choice, asked_.include_usage);
    choice.text.clear();
    choice.tokens.reset();
    choice.token_numbers.reset();
    choice.finish_reason = reason_for;
    choice.place = place;
  }
  if (ends || !choice.text.empty() || choice.tokens || choice.token_numbers)
    events += openai::choice_event(asked_.head, choice, asked_.include_usage);
  if (!events.empty()) reply_->piece(std::move(events));
  choice.text.clear();
  if (choice.token_numbers) choice.token_numbers->clear();
  if (!choice.tokens) return;
  for (const auto& t : *choice.tokens) choice.text_offset += openai::characters(t.chosen.text);
  choice.tokens->clear();
}

// The header waits for the first token: until then a failure can still have a status of its own. In
// a chat each choice begins with an event that has the role alone, as clients expect.
void answer::begin_stream() {
  if (std::exchange(begun_, true)) return;
  reply_->begin_stream(stream_head(fields_));
  if (!asked_.head.chat) return;
  std::string roles;
  for (const auto& c : choices_)
    roles += openai::role_event(asked_.head, c.choice.index, asked_.include_usage);
  reply_->piece(std::move(roles));
}

// A stream ends with the usage, if it was asked for, and OpenAI's last event.
void answer::finish() {
  openai::usage u{asked_.prompt_tokens, 0, 0};
  for (const auto& c : choices_) u.completion_tokens += c.tokens;
  // A prompt counts once, as its first choice found it.
  for (std::size_t i = 0; i < choices_.size(); i += asked_.choices_of_prompt)
    u.cached_tokens += choices_[i].cached;
  count(outcome::finished);
  metrics_.request_ended(clock_.now_s() - begin_s_);
  if (asked_.stream) {
    if (asked_.include_usage) reply_->piece(openai::usage_event(asked_.head, u));
    reply_->piece(std::string{openai::last_event});
    return reply_->end(true);
  }
  std::vector<openai::choice> all;
  for (auto& c : choices_) all.push_back(std::move(c.choice));
  reply_->whole({200, "application/json", openai::to_json(asked_.head, all, u), fields_});
}

// A stream that has begun has status 200 already: the problem is its last event, and the request
// counts as failed whatever the reason.
void answer::fail(const reason& why) {
  failed_ = true;
  const auto p = openai::problem_of(why);
  count(begun_ ? outcome::failed : outcome_of(p));
  reply_->fail({p.status, "application/json", openai::to_json(p), fields_of(p)},
               openai::error_event(p));
}

}  // namespace troupe::web
