#include "actors/node/serving_supervisor.hpp"

#include <utility>

#include "actors/protocol/messenger.hpp"
#include "actors/serving/decoder/batch_thread.hpp"
#include "actors/serving/decoder/block_receiver.hpp"
#include "actors/serving/decoder/decoder.hpp"
#include "actors/serving/decoder/decoder_backend.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::actors {

void serving_supervisor::start(node_actor::pointer self, runtime::host h, shared_cluster c,
                               std::string backend) {
  self_ = self;
  host_ = std::move(h);
  cluster_ = std::move(c);
  backend_ = std::move(backend);
}

// A real decoder is detached: its end waits for the device's last round, which must not block the
// threads that all actors share.
void serving_supervisor::begin(const work_order& w, std::function<double()> slowdown) {
  stop(w.lease);
  decoder_options o;
  o.cluster = cluster_;
  o.lease = w.lease;
  o.incarnation = host_.incarnation;
  o.what = *w.serve;
  o.messenger = messenger{host_, node_actor{self_}};
  o.slowdown = std::move(slowdown);
  o.start_s = w.start_s;
  if (is_simulated(backend_)) {
    decoders_[w.lease] = spawn_actor<decoder_behavior, caf::linked>(*self_, std::move(o));
    return;
  }
  o.executor = std::make_shared<batch_thread>(
      [what = o.what, backend = backend_] { return load_model(what, backend); });
  decoders_[w.lease] =
      spawn_actor<decoder_behavior, caf::linked + caf::detached>(*self_, std::move(o));
}

void serving_supervisor::stop(lease_id lease) {
  const auto it = decoders_.find(lease);
  if (it == decoders_.end()) return;
  self_->unlink_from(it->second->address());
  caf::anon_send(it->second, stop_serving{});
  decoders_.erase(it);
}

template <class T>
bool serving_supervisor::to_decoder(lease_id lease, address from, T& m, const payload& body) {
  const auto it = decoders_.find(lease);
  if (it == decoders_.end()) return false;
  caf::anon_send(it->second, inbound<T>{from, std::move(m), body, {}});
  return true;
}

/// Spares the front the time until it notices that the decoder is gone.
void serving_supervisor::answer_for_lost(address to, const request_name& n, lease_id lease) const {
  generated g;
  g.name = n;
  g.lease = lease;
  g.finish = generated::ending::failed;
  g.why = {reason::kind::unavailable, "the decoder is not on this node any more"};
  send_message(host_, to, g);
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
    if (!to_decoder(b->name.lease, from, *b, body))
      messenger{host_, node_actor{self_}}.send(from, not_needed(*b));
  } else {
    return false;
  }
  return true;
}

}  // namespace troupe::actors
