#include "actors/serving/decoder/decoder_batch.hpp"

#include <algorithm>
#include <utility>

#include "gpu/inference/completion_room.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

// Callbacks of the executor hold a reference to the actor until they have run, since it may end
// meanwhile. It must not be a member: the actor would keep itself alive.

void decoder_batch::open(decoder_actor::pointer self, const serving& what,
                         std::shared_ptr<batch_executor> executor, open_listener done) {
  self_ = self;
  what_ = what;
  executor_ = std::move(executor);
  executor_->open([this, to = decoder_actor{self},
                   done = std::move(done)](expected<decoder_model> m) {
    caf::anon_send(
        to, call_now{[this, m = std::move(m), done] {
          if (!m) return done(refuse(m.error()));
          model_ = *m;
          context_ = what_.context == 0 ? m->positions : std::min(what_.context, m->positions);
          // A simulated device has no tiles, and its prompts have no tokens to be compared.
          queue_.emplace(gpu::batch_queue::limits{.running = std::max(what_.max_running, 1u),
                                                  .chunk = m->simulated ? 0 : gpu::tile_positions,
                                                  .shares = !m->simulated},
                         m->pages, gpu::prefix_owner{what_.model.hash, {}});
          done({});
        }});
  });
}

expected<void> decoder_batch::check(const completion_request& r,
                                    std::span<const std::uint32_t> tokens) const {
  TROUPE_INVARIANT(model_ && queue_, "a request is checked after the decoder has its model");
  const gpu::completion_room room{what_.model.name, context_, model_->vocabulary, queue_->pages()};
  if (auto ok = gpu::check(r, tokens, room); !ok) return ok;
  return gpu::check_sequences(held(), 1, what_.max_sequences);
}

void decoder_batch::write(decoder_state& to) const {
  to.context = context_;
  to.pages = queue_->pages();
  to.free_pages = queue_->free_pages();
  to.running = static_cast<std::uint32_t>(queue_->running());
  to.waiting = static_cast<std::uint32_t>(queue_->waiting());
  to.max_sequences = what_.max_sequences;
  const auto& n = queue_->counted();
  if (const auto cached = queue_->cached_pages(); cached > 0) to.cached_pages = cached;
  if (n.set_back > 0) to.set_back = n.set_back;
  if (n.computed_prompt > 0) to.computed_prompt = n.computed_prompt;
  if (n.cached_prompt > 0) to.cached_prompt = n.cached_prompt;
}

// A round at a time: what a round contains depends on the tokens that the one before it chose.
void decoder_batch::execute_next(round_listener done) {
  if (busy_ || queue_->idle()) return;
  busy_ = true;
  executor_->execute(queue_->next(), [this, to = decoder_actor{self_}, done = std::move(done)](
                                         expected<std::vector<gpu::batch_result>> all) {
    caf::anon_send(to, call_now{[this, all = std::move(all), done] {
                     TROUPE_INVARIANT(busy_,
                                      "a round's result belongs to the one that is under way");
                     busy_ = false;
                     done(all);
                   }});
  });
}

}  // namespace troupe::actors
