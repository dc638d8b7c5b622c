#include "actors/serving/prefill/guest_device.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "actors/serving/decoder/median_of_recent.hpp"
#include "gpu/device/clock.hpp"
#include "gpu/device/device_type.hpp"
#include "gpu/inference/weights.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/model_files.hpp"
#include "planners/bubbletea/prefill_times.hpp"

namespace troupe::actors {

namespace {

// One thread, the executor's, computes; the actor's thread adds and forgets tiles. They share the
// queue of tiles, the list of forgotten prompts and the usual factor, and nothing else. The pages
// of a forgotten prompt are therefore released in the next operation, by the executor's thread, to
// which the device belongs.
class guest_device final : public guest_engine {
 public:
  guest_device(const guest_place& place, bool resumable,
               std::unique_ptr<gpu::inference_device> device, listener done)
      : place_{place}, resumable_{resumable}, device_{std::move(device)}, done_{std::move(done)} {}

  void add(guest_tile t) override {
    std::lock_guard lock{guard_};
    tiles_.add(std::move(t));
  }
  void forget(const prefill_name& n) override {
    std::lock_guard lock{guard_};
    tiles_.forget(n);
    forgotten_.push_back(n);
  }
  run next(double) override;
  void execute(std::uint32_t count) override;
  std::optional<double> time_factor() const override {
    const double f = usual_factor_;
    return f > 0 ? std::optional{f} : std::nullopt;
  }

  /// Computes a tile of no prompt, so that its time is known before the first promise.
  /// Precondition: the executor does not have this guest yet.
  expected<void> measure(bool embeds, std::size_t row_bytes);

 private:
  using tile_id = std::pair<std::uint64_t, std::uint32_t>;
  static tile_id id_of(const guest_tile& t) { return {t.sequence, t.tile}; }

  std::uint32_t steps_of(const guest_tile& t) const {
    return 2 * place_.layers * gpu::pages_for(t.rows);
  }
  double predicted_s(const guest_tile& t) const;
  expected<void> operate(const guest_tile& t);
  void tile_took(double s, double planned_s);
  void release_forgotten();
  expected<void> begin(const guest_tile& t);
  void compute(const guest_tile& t);
  void collect(const guest_tile& t);
  void report(const guest_tile& t, guest_tile_result r);

  const guest_place place_;
  const bool resumable_;
  // Offers of time that were too short for the next operation. After this number it begins anyway:
  // otherwise an operation whose time was overestimated would never be measured again.
  static constexpr std::uint32_t max_refused = 100;

  std::mutex guard_;  // of the next two
  tile_queue tiles_;
  std::vector<prefill_name> forgotten_;
  // The rest is used by the executor's thread alone.
  const std::unique_ptr<gpu::inference_device> device_;
  const listener done_;
  std::map<prefill_name, gpu::sequence_id> sequences_;
  gpu::sequence_id last_sequence_ = 0;
  std::unique_ptr<gpu::inference_work> work_;
  std::optional<tile_id> working_on_;
  std::uint32_t refused_ = 0;  // offers since the last operation began
  guest_tile_result result_;   // of the tile that has begun
  double last_end_s_ = 0, tile_began_s_ = 0;
  double gaps_s_ = 0;  // between the tile's operations, without yields
  // How much longer operations take than was predicted: each of them, and those of a tile together
  // (an attention and an MLP take different times). By the thread's CPU time, which is what they
  // need of a bubble: on the clock they take longer where other threads want the processor.
  median_of_recent factor_, tile_factor_;
  median_of_recent collect_;              // of a tile
  std::atomic<double> usual_factor_ = 0;  // of tile_factor_, for other threads; 0: unknown
};

// The controller plans tiles, so it gets the factor of whole tiles; an operation's own prediction
// uses the factor of operations.
void guest_device::tile_took(double s, double planned_s) {
  if (planned_s <= 0) return;
  tile_factor_.add(s / planned_s);
  usual_factor_ = tile_factor_.value(1);
}

// Twice, and the faster one counts: the first time includes page faults and cold caches, which
// later tiles do not have.
expected<void> guest_device::measure(bool embeds, std::size_t row_bytes) {
  constexpr std::uint32_t rows = gpu::tile_positions;
  const gpu::sequence_id sequence = 0;
  const payload in{std::vector<std::byte>(rows * (embeds ? sizeof(std::uint32_t) : row_bytes))};
  double took_s = never;
  for (int again = 0; again < 2; ++again) {
    if (auto ok = device_->reserve(sequence, rows); !ok) return ok;
    auto work = device_->prefill(sequence, 0, in);
    if (!work) return refuse(work.error());
    const double began_s = gpu::thread_cpu_s();
    while ((*work)->steps_left() > 0) (*work)->step();
    took_s = std::min(took_s, gpu::thread_cpu_s() - began_s);
    *work = nullptr;
    device_->release(sequence);
  }
  const planners::prefill_rate rate{place_.token_s, place_.pair_s, place_.half_tokens};
  const double planned_s = planners::prefill_s(rate, place_.layers, rows, 0);
  if (planned_s > 0) factor_.add(took_s / planned_s);
  tile_took(took_s, planned_s);
  return {};
}

// A tile is planned as one number of operations of equal time. Under rule resumable that time is
// divided by its sublayer steps; otherwise the whole tile is one operation. After the last step
// there is one more operation, collect(), whose time is measured and not planned.
double guest_device::predicted_s(const guest_tile& t) const {
  const bool present = working_on_ == id_of(t);
  if (present && work_->steps_left() == 0) return collect_.value(0);
  const double all_s = t.operations * t.each_s;
  return factor_.value(1) * (resumable_ ? all_s / steps_of(t) : all_s);
}

// Gives one operation at a time, since each takes another time. An operation that has not fitted
// into the room for too long is offered as if it took no time, so that a prediction that is too
// long is corrected by a measurement.
gpu::guest_work::run guest_device::next(double room_s) {
  std::lock_guard lock{guard_};
  if (const auto* t = tiles_.present()) {
    double expected_s = predicted_s(*t);
    if (expected_s > room_s && ++refused_ > max_refused) expected_s = 0;
    return {1, expected_s, static_cast<std::uint32_t>(t->name.number)};
  }
  // Pages of prompts that are over are released in the next operation; it takes no time.
  return {forgotten_.empty() ? 0u : 1u, 0};
}

// The present tile may have been forgotten since next(); then there is nothing to do but the
// release.
void guest_device::execute(std::uint32_t) {
  release_forgotten();
  refused_ = 0;
  guest_tile t;
  {
    std::lock_guard lock{guard_};
    if (!tiles_.present()) return;
    t = tiles_.begin();
  }
  if (auto ok = operate(t); !ok) {
    guest_tile_result failed{t.name, t.tile};
    failed.why = ok.error();
    report(t, std::move(failed));
  }
}

/// One operation of this tile. What the device throws ends the prompt, not the guest.
expected<void> guest_device::operate(const guest_tile& t) try {
  if (working_on_ != id_of(t))
    if (auto ok = begin(t); !ok) return ok;
  work_->steps_left() > 0 ? compute(t) : collect(t);
  last_end_s_ = gpu::now_s();
  return {};
} catch (const std::exception& e) {
  work_ = nullptr;
  working_on_.reset();
  return refuse(reason::kind::unavailable, "the guest's device failed: {}", e.what());
}

// Work on a forgotten prompt must end before its pages are released, which it still uses.
void guest_device::release_forgotten() {
  std::vector<prefill_name> all;
  {
    std::lock_guard lock{guard_};
    all.swap(forgotten_);
  }
  for (const auto& n : all) {
    const auto at = sequences_.find(n);
    if (at == sequences_.end()) continue;
    if (working_on_ && result_.name == n) {
      work_ = nullptr;
      working_on_.reset();
    }
    device_->release(at->second);
    sequences_.erase(at);
  }
}

// Pages are reserved up to the end of the tile, not of the prompt, which may be cancelled before.
expected<void> guest_device::begin(const guest_tile& t) {
  work_ = nullptr;
  working_on_.reset();
  const auto [at, fresh] = sequences_.try_emplace(t.name, last_sequence_ + 1);
  if (fresh) ++last_sequence_;
  if (auto ok = device_->reserve(at->second, t.first + t.rows); !ok) return ok;
  auto work = device_->prefill(at->second, t.first, t.in);
  if (!work) return refuse(work.error());
  work_ = std::move(*work);
  working_on_ = id_of(t);
  result_ = {t.name, t.tile};
  last_end_s_ = gaps_s_ = 0;
  tile_began_s_ = gpu::now_s();
  return {};
}

// Time on the processor counts, not on the clock: the executor reserves idle time for what the
// guest computes, and waiting for the processor is the guard's part. A longer gap since the last
// operation is a yield to the training; shorter ones are the executor's own overhead, and part of a
// tile's time.
void guest_device::compute(const guest_tile& t) {
  constexpr double yield_s = 1e-3;  // more than the executor needs between two operations
  const double gap_s = last_end_s_ > 0 ? gpu::now_s() - last_end_s_ : 0;
  if (gap_s > yield_s)
    ++result_.yields;
  else
    gaps_s_ += gap_s;
  const double planned_s =
      t.operations * t.each_s / (resumable_ ? static_cast<double>(steps_of(t)) : 1);
  const double began_s = gpu::thread_cpu_s();
  do {
    work_->step();
    ++result_.steps;
  } while (!resumable_ && work_->steps_left() > 0);
  const double took_s = gpu::thread_cpu_s() - began_s;
  if (planned_s > 0) factor_.add(took_s / planned_s);
  result_.computed_s += took_s;
}

// Copies the tile's hidden states and the pages that it has filled or ended in, several layers to a
// block. After the prompt's last tile the cache here is of no use: it is the decoder's now.
void guest_device::collect(const guest_tile& t) {
  const double began_s = gpu::thread_cpu_s();
  auto r = std::move(result_);
  r.hidden = work_->result();
  work_ = nullptr;
  working_on_.reset();
  const auto sequence = sequences_.at(t.name);
  const auto first = t.first / gpu::tile_positions;
  for (std::uint32_t l = 0; l < place_.layers && r.why.text.empty(); l += t.layers_a_block) {
    auto pages = device_->take_kv(sequence, place_.first_layer + l,
                                  std::min(t.layers_a_block, place_.layers - l), first,
                                  gpu::pages_for(t.first + t.rows) - first);
    if (!pages)
      r.why = pages.error();
    else
      r.pages.push_back(std::move(*pages));
  }
  if (t.first + t.rows == t.all_rows) {
    device_->release(sequence);
    sequences_.erase(t.name);
  }
  const double took_s = gpu::thread_cpu_s() - began_s;
  collect_.add(took_s);
  r.computed_s += took_s;
  tile_took(r.computed_s + gaps_s_, t.operations * t.each_s);
  r.took_s = gpu::now_s() - tile_began_s_;
  report(t, std::move(r));
}

// A tile that was forgotten while it was computed is no longer in the queue, and has no result.
void guest_device::report(const guest_tile& t, guest_tile_result r) {
  {
    std::lock_guard lock{guard_};
    const auto* present = tiles_.present();
    if (!tiles_.begun() || id_of(*present) != id_of(t)) return;  // forgotten meanwhile
    tiles_.take();
  }
  done_(std::move(r));
}

// The guest's share of the model in 32-bit floats, without embedding and head.
double weight_bytes(const gpu::inference_model& m, const guest_place& p) {
  double values = 0;
  for (std::uint32_t i = 2 * p.first_layer; i < 2 * (p.first_layer + p.layers); ++i) {
    const auto w = gpu::weights_of(m, i);
    for (const auto* each : w.all())
      if (each->exists()) values += static_cast<double>(each->values());
  }
  return values * sizeof(float);
}

}  // namespace

std::shared_ptr<guest_engine> make_guest_device(const guest_place& place, bool resumable,
                                                std::unique_ptr<gpu::inference_device> device,
                                                guest_engine::listener done) {
  return std::make_shared<guest_device>(place, resumable, std::move(device), std::move(done));
}

// The trainer has planned the guest's times and memory by the model's description, so the folder
// must have that model. Memory: weights first, then as many pages as fit, at most those of one
// prompt of the longest context. The result sets the sizes of the shape, which until then are the
// description's.
expected<std::shared_ptr<guest_engine>> open_guest_device(guest_shape& shape,
                                                          guest_engine::listener done,
                                                          const std::string& backend) {
  const auto& how = shape.setup.how;
  const auto& place = shape.setup.place;
  if (auto ok = check_model_files(how.model); !ok) return refuse(ok.error());
  auto model = gpu::read_inference_model(how.model.folder);
  if (!model) return refuse(model.error());
  const auto& described = how.model.shape;
  if (model->layers != described.layers || model->hidden != described.hidden)
    return refuse(reason::kind::invalid,
                  "{} has {} layers of {}, not the {} of {} of the job's model '{}'",
                  how.model.folder, model->layers, model->hidden, described.layers,
                  described.hidden, how.model.name);
  gpu::inference_spec spec;
  spec.model = *model;
  spec.weights = how.model.folder;
  spec.seed = how.model.random_weights;
  spec.first_sublayer = 2 * place.first_layer;
  spec.sublayers = 2 * place.layers;
  spec.embeds = place.first_layer == 0;
  const double weights = weight_bytes(*model, place), lent = how.memory_gb * bytes_per_gb;
  const auto page = gpu::page_bytes(*model);
  const double pages = (lent - weights) / (static_cast<double>(place.layers) * page);
  if (pages < 1)
    return refuse(reason::kind::insufficient,
                  "{:.3f} GB beside a stage do not hold {} layers of {} ({:.3f} GB) "
                  "and a page of cache",
                  how.memory_gb, place.layers, how.model.name, weights / bytes_per_gb);
  // One prompt is computed at a time.
  spec.pages =
      static_cast<std::uint32_t>(std::min<double>(pages, gpu::pages_for(model->positions)));
  const auto* type = gpu::type_of(device_kind_of(backend).value_or(device_kind::sim));
  if (!type || !type->make_inference)
    return refuse(reason::kind::infeasible, "devices of kind '{}' have no guests", backend);
  auto device = type->make_inference(spec);
  if (!device) return refuse(device.error());
  shape.simulated = false;
  shape.row_bytes = model->hidden * sizeof(float);
  shape.page_bytes = page;
  shape.max_tokens = std::min(model->positions, spec.pages * gpu::tile_positions);
  auto guest = std::make_shared<guest_device>(place, how.rule == "resumable", std::move(*device),
                                              std::move(done));
  if (auto ok = guest->measure(spec.embeds, shape.row_bytes); !ok) return refuse(ok.error());
  return guest;
}

}  // namespace troupe::actors
