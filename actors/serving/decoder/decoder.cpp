#include "actors/serving/decoder/decoder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "actors/protocol/actor_failure.hpp"
#include "actors/protocol/timing.hpp"
#include "actors/serving/decoder/simulated_batch.hpp"
#include "gpu/inference/completion_room.hpp"

namespace troupe::actors {

namespace {

/// The body's 32-bit integers.
std::vector<std::uint32_t> unpacked_tokens(const payload& body) {
  std::vector<std::uint32_t> tokens(body.bytes().size() / sizeof(std::uint32_t));
  if (!tokens.empty())
    std::memcpy(tokens.data(), body.bytes().data(), tokens.size() * sizeof(std::uint32_t));
  return tokens;
}

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

void decoder_behavior::start(decoder_actor::pointer self, decoder_options o) {
  self_ = self;
  o_ = std::move(o);
  if (!o_.executor) {
    simulated_batch::options s;
    s.what = o_.what;
    const auto& c = *o_.cluster;
    s.gpu = c.gpus[c.nodes[node_of(o_.messenger.self())].gpu];
    s.start_s = o_.start_s;
    s.slowdown = o_.slowdown;
    s.after = [self](double wait_s, std::function<void()> what) {
      self->delayed_send(decoder_actor{self}, nanoseconds_of(wait_s), call_now{std::move(what)});
    };
    o_.executor = std::make_shared<simulated_batch>(std::move(s));
  }
  open();
  on_tick();
}

// -- requests

void decoder_behavior::on_generate(address from, const generate& g, const payload& body) {
  if (over_ || !is_current(from, g.name)) return;
  const auto at = requests_.find(key_of(g.name));
  if (at != requests_.end()) {
    auto& r = at->second;
    if (r.about.name.attempt > g.name.attempt) return;
    if (r.about.name.attempt == g.name.attempt) return send(r.output.state());
    drop(key_of(g.name));  // a newer attempt on the same decoder
  }
  if (const auto* ending = ended_.find(g.name)) {
    if (ending->name == g.name) send(*ending);
    return;
  }
  if (auto ok = check(g, body); !ok) return decline(g, ok.error());
  hold(g, body);
  go_on();
}

/// Is the message from that front's present process? A newer process has none of the requests of an
/// older one.
bool decoder_behavior::is_current(address from, const request_name& n) {
  if (from != n.front) return false;
  auto& f = fronts_[from];
  if (n.incarnation < f.incarnation) return false;
  if (n.incarnation > f.incarnation) {
    drop_front(from, f.incarnation);
    f.incarnation = n.incarnation;
  }
  f.silent_since_s = never;
  return true;
}

expected<void> decoder_behavior::check(const generate& g, const payload& body) const {
  const auto failure = [](reason::kind k, std::string why) { return refuse(k, std::move(why)); };
  using kind = reason::kind;
  if (!model_) return failure(kind::unavailable, "the decoder still loads its model");
  if (g.replay >= g.what.answer_tokens())
    return failure(kind::invalid,
                   fmt::format("{} of {} tokens are known: there is nothing to generate", g.replay,
                               g.what.answer_tokens()));
  const bool has_tokens = !model_->simulated || !body.empty();
  const auto known = known_completion(g);
  if (const auto bytes = (std::uint64_t{g.what.prompt_tokens} + known) * sizeof(std::uint32_t);
      has_tokens && body.bytes().size() != bytes)
    return failure(kind::invalid,
                   fmt::format("{} tokens have {} bytes, but {} came", g.what.prompt_tokens + known,
                               bytes, body.bytes().size()));
  const gpu::completion_room room{o_.what.model.name, context_, model_->vocabulary,
                                  queue_->pages()};
  if (auto ok = gpu::check(g.what, unpacked_tokens(body), room); !ok) return ok;
  if (held() >= o_.what.max_sequences)
    return failure(kind::insufficient,
                   fmt::format("{} sequences are running or waiting, and {} are allowed", held(),
                               o_.what.max_sequences));
  return {};
}

/// Bubbles return the last position's hidden state alone: a prompt that is scored is computed here.
bool decoder_behavior::prefills_in_bubbles(const completion_request& r) const {
  return o_.what.bubbles && !r.scores_prompt;
}

/// Running or waiting.
std::size_t decoder_behavior::held() const {
  return queue_->running() + queue_->waiting();
}

void decoder_behavior::hold(const generate& g, const payload& body) {
  request r{g, unpacked_tokens(body), ++sequences_, now(), 0, {g.name, o_.lease, g.replay}, {}, {},
            0};
  gpu::batch_sequence s;
  s.id = r.sequence;
  s.what = g.what;
  s.what.scores_prompt = g.replay < g.what.scored_tokens();
  if (r.tokens.empty()) {  // simulated
    s.prompt.resize(g.what.prompt_tokens);
    s.known.resize(known_completion(g));
  } else {
    const auto end = r.tokens.begin() + g.what.prompt_tokens;
    s.prompt.assign(r.tokens.begin(), end);
    s.known.assign(end, r.tokens.end());
  }
  s.computes = !prefills_in_bubbles(g.what);
  queue_->add(std::move(s));
  by_sequence_.emplace(r.sequence, key_of(g.name));
  send(r.output.state());
  requests_.emplace(key_of(g.name), std::move(r));
}

void decoder_behavior::decline(const generate& g, reason why) {
  const auto end = failed_request(g.name, o_.lease, g.replay, std::move(why));
  ended_.add(end);
  send(end);
}

decoder_behavior::request* decoder_behavior::find(const request_name& n) {
  const auto at = requests_.find(key_of(n));
  return at == requests_.end() || at->second.about.name != n ? nullptr : &at->second;
}

decoder_behavior::request* decoder_behavior::find(gpu::sequence_id s) {
  const auto at = by_sequence_.find(s);
  return at == by_sequence_.end() ? nullptr : &requests_.at(at->second);
}

/// Its pages are free before anybody hears of the end.
void decoder_behavior::finish(request& r, generated::ending how, reason why) {
  queue_->end(r.sequence);
  by_sequence_.erase(r.sequence);
  end_prefill(r);
  r.output.end(how, std::move(why));
  changed_.insert(key_of(r.about.name));
}

/// The front needs nothing more of it.
void decoder_behavior::drop(const request_key& k) {
  const auto at = requests_.find(k);
  auto& r = at->second;
  if (!r.output.ended()) finish(r, generated::ending::failed, cancelled_by_front());
  ended_.add(r.output.final_state());
  changed_.erase(k);
  requests_.erase(at);
}

void decoder_behavior::drop_front(address front, std::uint64_t incarnation) {
  std::vector<request_key> all;
  for (const auto& [k, r] : requests_)
    if (k.front == front && k.incarnation <= incarnation) all.push_back(k);
  for (const auto& k : all) drop(k);
}

void decoder_behavior::on_ack(address from, const generated_ack& h) {
  if (over_ || !is_current(from, h.name)) return;
  auto* r = find(h.name);
  if (!r) return;
  r->output.on_acknowledged(h.tokens, now());
  if (!h.finished) return;
  drop(key_of(h.name));
  go_on();
}

void decoder_behavior::on_cancel(address from, const cancel_generate& c) {
  if (over_ || !is_current(from, c.name)) return;
  const auto k = key_of(c.name);
  const auto at = requests_.find(k);
  if (at != requests_.end()) {
    if (at->second.about.name.attempt > c.name.attempt) return;
    drop(k);
  }
  const auto* ending = ended_.find(c.name);
  if (!ending || ending->name != c.name) {
    // Nothing may begin it any more.
    const auto end = failed_request(c.name, o_.lease, 0, cancelled_by_front());
    if (!ending) ended_.add(end);
    send(end);
  } else {
    send(*ending);
  }
  go_on();
}

// -- statements

void decoder_behavior::send(const generated& g) {
  const bool expects_answer = !g.tokens.empty() || g.finish != generated::ending::none;
  if (auto& f = fronts_[g.name.front]; expects_answer && f.silent_since_s == never)
    f.silent_since_s = now();
  o_.messenger.send(g.name.front, g);
}

void decoder_behavior::send_state() {
  if (!model_) return;
  decoder_state s;
  s.lease = o_.lease;
  s.sequence = ++sequence_;
  s.model = o_.what.model.name;
  s.context = context_;
  s.pages = queue_->pages();
  s.free_pages = queue_->free_pages();
  s.running = static_cast<std::uint32_t>(queue_->running());
  s.waiting = static_cast<std::uint32_t>(queue_->waiting());
  s.max_sequences = o_.what.max_sequences;
  s.ending = over_;
  s.incarnation = o_.incarnation;
  s.folder = o_.what.model.folder;
  s.files = o_.what.model.hash;  // which its files had when they were opened
  for (std::uint32_t f = 0; f < o_.cluster->fronts.size(); ++f)
    o_.messenger.send(front_address(f), s);
}

void decoder_behavior::on_tick() {
  if (over_) return;
  for (auto& [a, f] : fronts_) {
    if (now() - f.silent_since_s <= settings().lease_s) continue;
    drop_front(a, f.incarnation);
    f.silent_since_s = never;
  }
  go_on();
  send_state();
  self_->delayed_send(decoder_actor{self_}, nanoseconds_of(settings().heartbeat_s / 4), tick{});
}

void decoder_behavior::on_stop() {
  if (!over_) fail({reason::kind::unavailable, "the decoder has been stopped"});
  self_->quit();
}

decoder_actor::behavior_type decoder(decoder_actor::stateful_pointer<decoder_behavior> self,
                                     decoder_options o) {
  auto& s = self->state;
  begin_actor(self, "decoder", [&] { s.start(self, std::move(o)); });
  return {
      [&s](const inbound<generate>& m) { s.on_generate(m.from, m.body, m.raw); },
      [&s](const inbound<generated_ack>& m) { s.on_ack(m.from, m.body); },
      [&s](const inbound<cancel_generate>& m) { s.on_cancel(m.from, m.body); },
      [&s](const inbound<prefill_reply>& m) { s.on_prefill_reply(m.from, m.body); },
      [&s](const inbound<prefill_progress>& m) { s.on_prefill_progress(m.from, m.body); },
      [&s](const inbound<prefill_block>& m) { s.on_block(m.from, m.body, m.raw); },
      [&s](const stop_serving&) { s.on_stop(); },
      [](const call_now& c) { c.what(); },
      [&s](const tick&) { s.on_tick(); },
  };
}

}  // namespace troupe::actors
