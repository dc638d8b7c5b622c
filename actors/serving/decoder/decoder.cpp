#include "actors/serving/decoder/decoder.hpp"

#include <algorithm>
#include <utility>

#include "actors/serving/decoder/simulated_batch.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

// Times at which something is due are not checked more often.
constexpr double shortest_wait_s = 0.005;

/// Tokens of the completion that the front has already, besides scored ones of the prompt.
std::uint32_t known_completion(const generate& g) {
  return g.replay - std::min(g.replay, g.what.scored_tokens());
}

generated failed_request(const request_name& n, lease_id lease, std::uint32_t known, reason why) {
  unacknowledged_tokens output{n, lease, known};
  output.end(generated::ending::failed, std::move(why));
  return output.final_state();
}

reason cancelled_by_front() {
  return {reason::kind::refused, "the front has cancelled it"};
}

}  // namespace

// Without an executor the device is simulated. It then calls back by this actor's own timers, so
// that a virtual run needs no thread and repeats exactly.
void decoder_behavior::start(decoder_actor::pointer self, decoder_options o) {
  self_ = self;
  o_ = std::move(o);
  if (!o_.executor) {
    o_.executor = std::make_shared<simulated_batch>(
        simulated_batch::options{.what = o_.what,
                                 .gpu = o_.cluster->gpu_of(node_of(o_.messenger.self())),
                                 .start_s = o_.start_s,
                                 .slowdown = o_.slowdown,
                                 .after = [self](double wait_s, std::function<void()> what) {
                                   send_later(self, wait_s, call_now{std::move(what)});
                                 }});
  }
  prefills_.start(o_.messenger, o_.cluster, o_.what.model.name, o_.lease,
                  [this](double at_s) { wake_at(at_s); });
  batch_.open(self, o_.what, o_.executor, [this](const expected<void>& ok) { on_open(ok); });
  on(tick{});
}

void decoder_behavior::on_open(const expected<void>& opened) {
  if (over_) return;
  if (!opened) return fail(opened.error());
  send_state();
}

// ---- messages of fronts

bool decoder_behavior::is_current(address from, const request_name& n) {
  return !over_ && requests_.is_current(from, n, [this](const request_key& k) { drop(k); });
}

// A `generate` is repeated until it is answered, and may come late. In this order: an attempt that
// runs here is answered by its state; a newer attempt replaces it; one that has ended, or whose
// newer attempt has, gets that ending or no answer; only then it is a request to decide on.
void decoder_behavior::on(const inbound<generate>& m) {
  const auto& g = m.body;
  if (!is_current(m.from, g.name)) return;
  if (const auto* r = find_in(requests_.all(), key_of(g.name))) {
    if (r->about.name.attempt > g.name.attempt) return;
    if (r->about.name.attempt == g.name.attempt) return send(r->output.state());
    drop(key_of(g.name));
  }
  if (const auto* ending = requests_.ending_of(g.name)) {
    if (ending->name == g.name) send(*ending);
    return;
  }
  auto tokens = m.raw.values<std::uint32_t>();
  if (auto ok = check(g, m.raw, tokens); !ok) {
    const auto end = failed_request(g.name, o_.lease, g.replay, ok.error());
    requests_.remember(end);
    return send(end);
  }
  hold(g, m.raw, std::move(tokens));
  go_on();
}

// The front's side of the wire is not trusted: sizes and numbers are checked here once, and nowhere
// after it.
expected<void> decoder_behavior::check(const generate& g, const payload& body,
                                       std::span<const std::uint32_t> tokens) const {
  using enum reason::kind;
  if (drains_) return refuse(unavailable, "the decoder ends, since its node is being stopped");
  if (!batch_.is_ready()) return refuse(unavailable, "the decoder still loads its model");
  if (g.replay >= g.what.answer_tokens())
    return refuse(invalid, "{} of {} tokens are known: there is nothing to generate", g.replay,
                  g.what.answer_tokens());
  // Never the model in its place.
  if (g.adapter && !batch_.model().adapters.contains(*g.adapter))
    return refuse(unavailable,
                  "found no adapter '{:.64}' here, expected one that this decoder serves",
                  *g.adapter);
  const auto expected_tokens = std::uint64_t{g.what.prompt_tokens} + known_completion(g);
  const auto bytes = expected_tokens * sizeof(std::uint32_t);
  const bool has_tokens = !batch_.model().simulated || !body.empty();
  if (has_tokens && body.bytes().size() != bytes)
    return refuse(invalid, "expected {} bytes for {} tokens, found {}", bytes, expected_tokens,
                  body.bytes().size());
  return batch_.check(g.what, tokens);
}

/// Bubbles return the last position's hidden state alone: a prompt that is scored is computed here.
/// Guests have no adapters.
bool decoder_behavior::prefills_in_bubbles(const generate& g) const {
  return o_.what.bubbles && !g.what.scores_prompt && !g.adapter;
}

// The completion's known tokens are fed one by one, as they were generated, so that the bits of
// further ones are the same. A replay that includes all scored tokens needs none of them again.
void decoder_behavior::hold(const generate& g, const payload& body,
                            std::vector<std::uint32_t> tokens) {
  // In a simulation there are none, and their values do not matter.
  tokens.resize(std::size_t{g.what.prompt_tokens} + known_completion(g));
  const auto prompt_end = tokens.begin() + g.what.prompt_tokens;
  gpu::batch_sequence s{++sequences_,
                        g.what,
                        {tokens.begin(), prompt_end},
                        {prompt_end, tokens.end()},
                        !prefills_in_bubbles(g)};
  if (g.adapter) s.adapter = batch_.model().adapters.at(*g.adapter);
  s.what.scores_prompt = g.replay < g.what.scored_tokens();
  batch_.queue().add(std::move(s));
  const auto& r = requests_.add({g, body, sequences_, now(), {g.name, o_.lease, g.replay}});
  send(r.output.state());
}

void decoder_behavior::on(const inbound<generated_ack>& m) {
  const auto& h = m.body;
  if (!is_current(m.from, h.name)) return;
  auto* r = requests_.find(h.name);
  if (!r) return;
  r->output.on_acknowledged(h.tokens, now());
  if (!h.finished) return;
  drop(key_of(h.name));
  go_on();
}

// A cancellation may overtake the attempt that it cancels: what ends here is remembered, so that
// the attempt is not begun when it arrives.
void decoder_behavior::on(const inbound<cancel_generate>& m) {
  const auto& c = m.body;
  if (!is_current(m.from, c.name)) return;
  const auto k = key_of(c.name);
  if (const auto* r = find_in(requests_.all(), k)) {
    if (r->about.name.attempt > c.name.attempt) return;
    drop(k);
  }
  const auto* ending = requests_.ending_of(c.name);
  if (ending && ending->name == c.name) {
    send(*ending);
  } else {
    const auto end = failed_request(c.name, o_.lease, 0, cancelled_by_front());
    if (!ending) requests_.remember(end);
    send(end);
  }
  go_on();
}

/// Its pages are free before the front receives the end.
void decoder_behavior::finish(request& r, generated::ending how, reason why) {
  batch_.queue().end(r.sequence);
  requests_.leave_batch(r);
  prefills_.end(std::exchange(r.prefill, 0));
  r.output.end(how, std::move(why));
  requests_.mark_changed(r);
}

/// The front needs nothing more of it.
void decoder_behavior::drop(const request_key& k) {
  auto& r = requests_.all().at(k);
  if (!r.output.ended()) finish(r, generated::ending::failed, cancelled_by_front());
  requests_.erase(k);
}

// ---- the batch

// Every message and every round ends here. Pages that have become free admit the next requests, the
// fronts get what is new, and the device its next round: in this order, so that a round has all
// that can be in it.
void decoder_behavior::go_on() {
  if (!batch_.is_ready() || over_) return;
  // One that ends at once makes room for others.
  for (auto fresh = batch_.queue().admit(); !fresh.empty(); fresh = batch_.queue().admit())
    for (const auto s : fresh) admit(*requests_.find(s));
  for (const auto& k : requests_.take_changed()) {
    auto& output = requests_.all().at(k).output;
    while (const auto update = output.take_update(now())) send(*update);
    wake_at(output.next_due_s());
  }
  batch_.execute_next([this](const auto& all) { on_round(all); });
  end_if_drained();
}

/// It has the pages of its prompt now. One that was set back for lack of pages is computed here.
void decoder_behavior::admit(request& r) {
  auto& queue = batch_.queue();
  if (queue.computes(r.sequence)) {
    if (r.admitted_s == 0) r.admitted_s = now();
    return;
  }
  r.admitted_s = now();
  const auto& what = r.about.what;
  // Bubbles compute whole prompts: one of which half is known takes less time here.
  if (o_.what.fallback && 2 * queue.known_prefix(r.sequence) >= what.prompt_tokens) {
    r.where.declined = {reason::kind::refused, "prompt_in_cache"};
    return queue.compute(r.sequence);
  }
  payload prompt;
  if (!r.body.empty())
    prompt = {r.body.owner(), r.body.bytes().first(sizeof(std::uint32_t) * what.prompt_tokens)};
  const double ttft_s = what.ttft_s > 0 ? what.ttft_s : o_.what.ttft_s;
  r.prefill = prefills_.begin(
      {r.sequence, what.prompt_tokens, std::move(prompt), r.arrived_s, ttft_s, what.priority},
      batch_.model());
  settle(prefills_.check(r.prefill));
  if (r.prefill != 0) wake_at(prefills_.next_due_s(r.prefill));
}

void decoder_behavior::on_round(const expected<std::vector<gpu::batch_result>>& all) {
  if (over_) return;
  if (!all) return fail(all.error());
  for (const auto& x : *all)
    if (x.unkept != 0)
      batch_.queue().forget(x.unkept);
    else if (auto* r = requests_.find(x.sequence))
      take(*r, x);
  go_on();
}

// An answer's positions count the scored tokens of the prompt, then the completion. The first
// `replay` of them the front has already: they are computed again and not sent again.
void decoder_behavior::take(request& r, const gpu::batch_result& x) {
  if (x.failed) return finish(r, generated::ending::failed, *x.failed);
  for (const auto& t : x.scored)
    if (++r.scored > r.about.replay) add(r, t);
  if (x.next) {
    batch_.queue().took(x.sequence, x.next->chosen.token);
    add(r, *x.next);
    const auto& last = r.about.what.last_tokens;
    if (std::ranges::count(last, x.next->chosen.token) > 0)
      return finish(r, generated::ending::stop);
  }
  if (r.output.tokens() >= r.about.what.answer_tokens()) finish(r, generated::ending::length);
}

/// A token of the answer that its front does not have.
void decoder_behavior::add(request& r, const generated_token& t) {
  if (r.output.tokens() == r.about.replay) {
    if (!r.where.bubbles) r.where.prefill_s = now() - r.admitted_s;
    if (const auto n = batch_.queue().cached_prompt(r.sequence); n > 0) r.where.cached = n;
    r.output.set_where(r.where);
  }
  r.output.add(t);
  requests_.mark_changed(r);
}

/// The decoder is over, and with it all requests; each front is sent the end once.
void decoder_behavior::fail(const reason& why) {
  over_ = true;
  send_state();
  for (auto& [k, r] : requests_.all()) {
    if (!r.output.ended()) finish(r, generated::ending::failed, why);
    send(r.output.state());
  }
  requests_.clear();
  caf::anon_send(o_.messenger.node(), serving_over{o_.lease, why.text});
}

/// Every front has the end of each of its requests.
void decoder_behavior::end_if_drained() {
  if (!drains_ || over_ || !requests_.all().empty()) return;
  over_ = true;
  send_state();
  caf::anon_send(o_.messenger.node(), serving_over{o_.lease, {}});
}

void decoder_behavior::fail_work(const std::string& why) {
  caf::anon_send(o_.messenger.node(), serving_over{o_.lease, why});
}

// ---- prefills in bubbles

void decoder_behavior::on_prefill(bubble_prefills::change c) {
  if (c.part) batch_.queue().put(std::move(*c.part));
  settle(std::move(c.ended));
  if (c.known) go_on();
}

/// Goes on with the whole cache. Without one the prompt is computed in the batch, or the request
/// ends, if the job has no fallback.
void decoder_behavior::settle(std::optional<bubble_prefills::outcome> o) {
  if (!o) return;
  auto& r = *requests_.find(o->sequence);
  r.prefill = 0;
  if (!o->failed) {
    r.where = std::move(o->where);
    return batch_.queue().cached(o->sequence, std::move(o->last_hidden));
  }
  if (!o_.what.fallback) return finish(r, generated::ending::failed, std::move(*o->failed));
  r.where = {};
  r.where.declined = std::move(*o->failed);
  batch_.queue().compute(o->sequence);
}

// ---- statements and times

void decoder_behavior::send(const generated& g) {
  if (!g.tokens.empty() || g.finish != generated::ending::none)
    requests_.expect_answer(g.name.front, now());
  o_.messenger.send(g.name.front, g);
}

void decoder_behavior::send_state() {
  if (!batch_.is_ready()) return;
  decoder_state s{.lease = o_.lease,
                  .sequence = ++states_,
                  .model = o_.what.model.name,
                  .ending = over_ || drains_,
                  .incarnation = o_.incarnation,
                  .folder = o_.what.model.folder,
                  // That of its files when they were opened.
                  .files = o_.what.model.hash};
  batch_.write(s);
  if (const auto& all = batch_.model().adapters; !all.empty()) {
    s.adapters.emplace();
    for (const auto& [name, a] : all) s.adapters->push_back(name);
  }
  for (std::uint32_t f = 0; f < o_.cluster->fronts.size(); ++f)
    o_.messenger.send(front_address(f), s);
}

void decoder_behavior::on(const tick&) {
  if (over_) return;
  requests_.drop_silent(now(), settings().lease_s, [this](const request_key& k) { drop(k); });
  go_on();
  send_state();
  send_later(self_, settings().heartbeat_s / 4, tick{});
}

/// Does all that is due, and sets the timer for the next due time.
void decoder_behavior::check_times() {
  if (over_) return;
  double next_s = prefills_.repeat_cancellations();
  for (auto& [k, r] : requests_.all()) {
    if (const auto due = r.output.take_due(now())) send(*due);
    settle(prefills_.check(r.prefill));
    next_s = std::min({next_s, r.output.next_due_s(), prefills_.next_due_s(r.prefill)});
  }
  go_on();
  wake_at(next_s);
}

// There is no way to cancel a delayed message: only the earliest timer counts, which an earlier
// time replaces, and one that is not the newest does nothing when it fires.
void decoder_behavior::wake_at(double at_s) {
  if (at_s >= wake_at_s_) return;
  wake_at_s_ = std::max(at_s, now() + shortest_wait_s);
  send_later(self_, wake_at_s_ - now(), call_now{[this, at_s = wake_at_s_] {
               if (at_s != wake_at_s_) return;
               wake_at_s_ = never;
               check_times();
             }});
}

// Fronts give new requests to others from now on, and requests that have begun go on here.
void decoder_behavior::on(const drain_serving&) {
  if (over_ || std::exchange(drains_, true)) return;
  send_state();
  end_if_drained();
}

void decoder_behavior::on(const stop_serving&) {
  if (!over_) fail({reason::kind::unavailable, "the decoder has been stopped"});
  self_->quit();
}

}  // namespace troupe::actors
