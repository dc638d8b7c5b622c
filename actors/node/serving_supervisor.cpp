#include "actors/node/serving_supervisor.hpp"

#include <utility>

#include "actors/serving/decoder/batch_thread.hpp"
#include "actors/serving/decoder/block_receiver.hpp"
#include "actors/serving/decoder/decoder.hpp"
#include "messages/base/find_in.hpp"

namespace troupe::actors {

// A real decoder is detached: its end waits for the device's last round, which must not block the
// threads that all actors share.
void serving_supervisor::begin(const work_order& w) {
  stop(w.lease);
  const bool computes = !is_simulated(node_.options.backend);
  decoder_options o{.cluster = node_.options.cluster,
                    .lease = w.lease,
                    .incarnation = node_.host.incarnation,
                    .what = *w.serve,
                    .messenger = node_.messenger(),
                    .slowdown = node_.options.slowdown,
                    .start_s = w.start_s};
  if (computes)
    o.executor = std::make_shared<batch_thread>([what = o.what, backend = node_.options.backend] {
      return load_with_adapters(what, backend);
    });
  decoders_[w.lease] = node_.spawn<decoder_behavior>(computes, std::move(o));
}

void serving_supervisor::stop(lease_id lease) {
  const auto it = decoders_.find(lease);
  if (it == decoders_.end()) return;
  node_.self->unlink_from(it->second->address());
  caf::anon_send(it->second, stop_serving{});
  decoders_.erase(it);
}

void serving_supervisor::drain(lease_id lease) {
  if (const auto* d = find_in(decoders_, lease)) caf::anon_send(*d, drain_serving{});
}

template <class T>
bool serving_supervisor::to_decoder(lease_id lease, address from, T& m, const payload& body) {
  const auto* to = find_in(decoders_, lease);
  if (to) caf::anon_send(*to, inbound<T>{from, std::move(m), body, {}});
  return to != nullptr;
}

/// Spares the front the time until it notices that the decoder is gone.
void serving_supervisor::answer_for_lost(address to, const request_name& n, lease_id lease) const {
  generated g;
  g.name = n;
  g.lease = lease;
  g.finish = generated::ending::failed;
  g.why = {reason::kind::unavailable, "the decoder is not on this node any more"};
  send_message(node_.host, to, g);
}

// Each message names the lease of its decoder. One for a decoder that is not here (any more) gets
// the answer that ends its repetition: the request has failed, the block is not needed. The rest is
// dropped, since its senders stop by themselves.
bool serving_supervisor::on_message(address from, message& m, const payload& body) {
  if (auto* g = std::get_if<generate>(&m)) {
    if (!to_decoder(g->lease, from, *g, body) && from == g->name.front)
      answer_for_lost(from, g->name, g->lease);
  } else if (auto* h = std::get_if<generated_ack>(&m)) {
    to_decoder(h->lease, from, *h, body);
  } else if (auto* c = std::get_if<cancel_generate>(&m)) {
    if (!to_decoder(c->lease, from, *c, body) && from == c->name.front)
      answer_for_lost(from, c->name, c->lease);
  } else if (auto* r = std::get_if<prefill_reply>(&m)) {
    to_decoder(r->name.lease, from, *r, body);
  } else if (auto* p = std::get_if<prefill_progress>(&m)) {
    to_decoder(p->name.lease, from, *p, body);
  } else if (auto* b = std::get_if<prefill_block>(&m);
             b && b->what != prefill_block::kind::hidden) {
    if (!to_decoder(b->name.lease, from, *b, body)) node_.messenger().send(from, not_needed(*b));
  } else {
    return false;
  }
  return true;
}

}  // namespace troupe::actors
