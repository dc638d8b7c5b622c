#include "actors/serving/front/front_requests.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/protocol/messenger.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

constexpr double first_pause_s = 0.25, longest_pause_s = 2;

/// A request without any sign of its decoder is asked for again this often: the decoder may have
/// forgotten it, and would begin it anew, with the same tokens.
double quiet_s(double lease_s) {
  return std::max(1.0, lease_s / 4);
}

std::uint32_t positions_of(const completion_request& r) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(r.positions(), ~std::uint32_t{0}));
}

/// The prompt, and the completion's known tokens. Empty in a simulation.
payload body_of(const model_prompt& p, std::span<const std::uint32_t> known) {
  if (p.tokens.empty()) return {};
  const auto completion =
      known.subspan(std::min<std::size_t>(known.size(), p.what.scored_tokens()));
  auto tokens = p.tokens;
  tokens.insert(tokens.end(), completion.begin(), completion.end());
  return payload{std::move(tokens)};
}

/// By which beginnings of prompts are known: those of an adapter have other pages. No name has a
/// slash.
std::string owner_of(const model_prompt& p) {
  return p.adapter.empty() ? p.model : p.model + "/" + p.adapter;
}

std::optional<reason> refusal_of(const model_prompt& p) {
  if (p.what.prompt_tokens == 0 || p.what.answer_tokens() == 0)
    return reason{reason::kind::invalid,
                  "a prompt and its completion need at least one token each"};
  if (!p.tokens.empty() && p.tokens.size() != p.what.prompt_tokens)
    return reason{reason::kind::invalid,
                  fmt::format("the prompt has {} tokens, the request declares {}", p.tokens.size(),
                              p.what.prompt_tokens)};
  return {};
}

/// A statement may repeat the prompt's tokens, and no others.
bool repeats_prompt(const model_prompt& p, const generated& g) {
  if (p.tokens.empty()) return true;
  const auto end = std::min<std::uint64_t>(g.first + g.tokens.size(), p.what.scored_tokens());
  for (std::uint64_t i = g.first; i < end; ++i)
    if (g.tokens[i - g.first].chosen.token != p.tokens[i + 1]) return false;
  return true;
}

}  // namespace

front_requests::front_requests(runtime::host h, shared_cluster c)
    : host_{std::move(h)}, cluster_{c}, decoders_{std::move(c)} {}

void front_requests::submit(std::uint64_t number, model_prompt p, completion_listener listener) {
  request fresh;
  fresh.asked = std::move(p);
  fresh.listener = std::move(listener);
  fresh.name = {host_.self, host_.incarnation, number, 0};
  fresh.asked_s = now();
  const auto at = requests_.emplace(number, std::move(fresh)).first;
  if (auto why = refusal_of(at->second.asked))
    return end(at, generated::ending::failed, std::move(*why));
  place(at, false);
}

// The decoder is asked to end it until it confirms, or for a lease's duration, after which it ends
// the request by itself.
void front_requests::cancel(std::uint64_t number, bool enough) {
  const auto at = requests_.find(number);
  if (at == requests_.end()) return;
  tally_.cancelled(enough);
  if (const auto& r = at->second; r.decoder)
    cancelled_[number] = {r.name, *r.decoder, now(), now() + lease_s()};
  requests_.erase(at);
  repeat_cancellations();
}

void front_requests::on_message(address from, const message& m) {
  if (const auto* g = std::get_if<generated>(&m)) return on_generated(from, *g);
  if (const auto* s = std::get_if<decoder_state>(&m)) return on_decoder_state(from, *s);
  const auto* all = std::get_if<serving_leases>(&m);
  if (all && from == controller_address && decoders_.state(*all)) place_all(true);
}

void front_requests::on_decoder_state(address from, const decoder_state& s) {
  const auto fresh = decoders_.receive(from, s, now());
  if (fresh && *fresh) return place_all(true);
  // Without a statement it is this front that does not know.
  if (fresh || !decoders_.has_statement()) return;
  ++refused_;
  const auto lines = refusals_.pass(std::to_string(from), now());
  if (lines > 0)
    runtime::log(runtime::log_level::warn, host_name(*cluster_, host_.self),
                 "ignored a decoder's state", {{"why", fresh.error().text}, {"states", lines}});
}

// ---- what decoders have generated

// Statements of requests that are over here, or of an older attempt, are acknowledged as finished:
// otherwise their decoder would repeat them and keep the pages.
void front_requests::on_generated(address from, const generated& g) {
  if (g.name.front != host_.self) return;
  const decoder_name sender{from, g.lease};
  decoders_.refresh(sender, now());
  const auto at =
      g.name.incarnation == host_.incarnation ? requests_.find(g.name.number) : requests_.end();
  if (at != requests_.end() && at->second.name == g.name && at->second.decoder == sender)
    return take(at, from, g);
  // It is over here, or another attempt has begun.
  confirm(from, g, g.first + g.tokens.size(), true);
  on_cancelled(sender, g);
}

/// A statement that a sound decoder can make about this request.
bool front_requests::is_acceptable(const request& r, const generated& g) const {
  const auto& what = r.asked.what;
  return std::uint64_t{g.first} + g.tokens.size() <= what.answer_tokens() &&
         repeats_prompt(r.asked, g) && std::ranges::all_of(g.tokens, [&](const generated_token& t) {
           return t.top.size() <= what.top;
         });
}

// Statements overlap, since a decoder repeats what is not acknowledged: only the tokens beyond the
// known ones are new. One that begins beyond them shows that an earlier one was lost; it is
// answered by the known position and otherwise ignored, so that tokens reach the listener in order
// and exactly once. A failure counts at any position: the known tokens are replayed elsewhere.
void front_requests::take(request_map::iterator at, address from, const generated& g) {
  using enum generated::ending;
  auto& r = at->second;
  if (!is_acceptable(r, g)) return;
  r.last_seen_s = now();
  r.ask_at_s = now() + quiet_s(lease_s());
  // An earlier statement has been lost, and will be repeated.
  if (g.first > r.known.size() && g.finish != failed)
    return confirm(from, g, r.known.size(), false);
  const auto had = r.known.size() - std::min<std::size_t>(g.first, r.known.size());
  std::vector<generated_token> fresh;
  if (had < g.tokens.size() && g.first <= r.known.size())
    fresh.assign(g.tokens.begin() + static_cast<std::ptrdiff_t>(had), g.tokens.end());
  for (const auto& t : fresh) r.known.push_back(t.chosen.token);
  const bool whole = g.first + g.tokens.size() == r.known.size();
  const bool over = g.finish == failed || (g.finish != none && whole);
  confirm(from, g, r.known.size(), over);
  if (!fresh.empty()) notify(r, std::move(fresh), g);
  if (!over) return;
  if (g.finish == failed) return fail(at, g.why);
  end(at, g.finish, {});
}

void front_requests::confirm(address to, const generated& g, std::size_t tokens,
                             bool finished) const {
  send_message(host_, to,
               generated_ack{g.name, g.lease, static_cast<std::uint32_t>(tokens), finished});
}

void front_requests::on_cancelled(const decoder_name& sender, const generated& g) {
  const auto at = cancelled_.find(g.name.number);
  if (at != cancelled_.end() && g.finish != generated::ending::none && at->second.name == g.name &&
      at->second.decoder == sender)
    cancelled_.erase(at);
}

void front_requests::notify(request& r, std::vector<generated_token> fresh, const generated& g) {
  completion_update update;
  update.number = r.name.number;
  update.first = static_cast<std::uint32_t>(r.known.size() - fresh.size());
  update.tokens = std::move(fresh);
  const auto scored = r.asked.what.scored_tokens();
  update.scored = static_cast<std::uint32_t>(
      std::min<std::size_t>(scored - std::min(scored, update.first), update.tokens.size()));
  update.where = g.where;
  update.attempts = r.name.attempt;
  update.decoder = r.decoder->node;
  tally_.count(update, now() - r.asked_s);
  r.listener(update);
}

// The request is erased before its listener is called, which may submit or cancel others.
void front_requests::end(request_map::iterator at, generated::ending how, reason why) {
  completion_update update;
  update.number = at->first;
  update.first = static_cast<std::uint32_t>(at->second.known.size());
  update.finish = how;
  update.why = std::move(why);
  update.attempts = at->second.name.attempt;
  if (at->second.decoder) update.decoder = at->second.decoder->node;
  tally_.count(update, now() - at->second.asked_s);
  const auto listener = std::move(at->second.listener);
  requests_.erase(at);
  listener(update);
}

// ---- which decoder

void front_requests::fail(request_map::iterator at, const reason& why) {
  using enum reason::kind;
  auto& r = at->second;
  // Infeasible: every decoder of the model computes the same.
  if (why.code == invalid || why.code == refused || why.code == infeasible)
    return end(at, generated::ending::failed, why);
  r.last_failure = why;
  r.failed.insert(*std::exchange(r.decoder, std::nullopt));
  // Declined: nothing is lost yet, and its client may ask again.
  place(at, why.code != insufficient || !r.known.empty());
}

/// Gives a request to a decoder. If there is none, it waits for one, or ends.
///
/// The known tokens may already be the whole answer: a decoder that was lost between its last token
/// and the end has left only that open. At most a lease's duration is waited for a decoder, since
/// by then every decoder that still exists has reported itself.
void front_requests::place(request_map::iterator at, bool may_wait) {
  using enum generated::ending;
  auto& r = at->second;
  const auto& what = r.asked.what;
  r.decoder.reset();
  if (r.known.size() >= what.answer_tokens()) return end(at, length, {});
  if (r.known.size() > what.scored_tokens() &&
      std::ranges::count(what.last_tokens, r.known.back()) > 0)
    return end(at, stop, {});
  if (r.name.attempt >= max_attempts)
    return end(at, failed,
               {reason::kind::unavailable, fmt::format("{} decoders have failed; the last: {}",
                                                       max_attempts, r.last_failure.text)});
  const auto site = cluster_->fronts[front_of(host_.self)].datacenter;
  const auto to = choose_decoder(
      decoders_.all(), {r.asked.model, positions_of(r.asked.what), site, r.failed,
                        prefixes_.pages_of(owner_of(r.asked), r.asked.tokens), r.asked.adapter});
  if (to) return begin_attempt(r, *to);
  const auto& why = to.error().code == reason::kind::unavailable && !r.last_failure.text.empty()
                        ? r.last_failure
                        : to.error();
  if (!r.waits_until_s) r.waits_until_s = now() + lease_s();
  if (!may_wait || to.error().code == reason::kind::invalid || now() >= *r.waits_until_s)
    return end(at, failed, why);
}

/// Those that wait, and those whose decoder is lost.
void front_requests::place_all(bool lost_ones_only) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, r] : requests_)
    if (!lost_ones_only || !r.decoder || !decoders_.has(*r.decoder)) numbers.push_back(number);
  for (const auto number : numbers) look_after(requests_.find(number));
}

// The known tokens go along as replay: the decoder feeds them without sending them again, so an
// attempt continues the answer of the one before it.
void front_requests::begin_attempt(request& r, const decoder_name& to) {
  ++r.name.attempt;
  tally_.begun(r.name.attempt);
  r.decoder = to;
  r.waits_until_s.reset();
  r.body = body_of(r.asked, r.known);
  r.last_seen_s = now();
  r.pause_s = first_pause_s;
  decoders_.give(to, r.asked.what.prompt_tokens);
  prefixes_.add(owner_of(r.asked), r.asked.tokens, to);
  ask(r);
}

// Repeated with doubled pauses until the decoder answers.
void front_requests::ask(request& r) {
  generate g{r.name, r.decoder->lease, r.asked.what, static_cast<std::uint32_t>(r.known.size())};
  if (!r.asked.adapter.empty()) g.adapter = r.asked.adapter;
  send_message(host_, r.decoder->node, g, r.body);
  r.ask_at_s = now() + r.pause_s;
  r.pause_s = std::min(2 * r.pause_s, longest_pause_s);
}

front_report front_requests::report() const {
  front_report r;
  r.requests = static_cast<std::uint32_t>(requests_.size());
  tally_.write(r);
  for (const auto& [name, d] : decoders_.all()) r.decoders.push_back({node_of(name.node), d.state});
  return r;
}

// ---- time

void front_requests::on_tick() {
  decoders_.forget_silent(now());
  place_all(false);
  repeat_cancellations();
}

// A request's decoder may be gone in three ways, which differ in how soon they are noticed: the
// controller no longer states it, it has been silent to this front, or it is alive and does not
// answer for this request.
void front_requests::look_after(request_map::iterator at) {
  auto& r = at->second;
  if (!r.decoder) return place(at, true);
  if (!decoders_.has(*r.decoder)) {
    r.last_failure = {reason::kind::unavailable, "its decoder is lost"};
    return place(at, true);
  }
  if (now() - r.last_seen_s >= lease_s())
    return fail(at, {reason::kind::unavailable, "no response from its decoder"});
  if (now() >= r.ask_at_s) ask(r);
}

void front_requests::repeat_cancellations() {
  std::erase_if(cancelled_, [&](const auto& entry) {
    return now() >= entry.second.until_s || !decoders_.has(entry.second.decoder);
  });
  for (auto& [number, c] : cancelled_) {
    if (now() < c.ask_at_s) continue;
    send_message(host_, c.decoder.node, cancel_generate{c.name, c.decoder.lease});
    c.ask_at_s = now() + first_pause_s;
  }
}

}  // namespace troupe::actors
