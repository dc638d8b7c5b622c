#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/protocol/courier.hpp"
#include "actors/protocol/protocol.hpp"
#include "actors/training/collectives/device_all_reduce.hpp"
#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "actors/training/sent_tensors.hpp"
#include "actors/training/simulated_link.hpp"
#include "actors/training/stage_times.hpp"
#include "gpu/device/stage_device.hpp"

namespace troupe::actors {

/// The tokens of a micro-batch and their targets: a pure function of its arguments.
using token_feed =
    std::function<std::pair<payload, payload>(std::uint64_t iteration, std::uint32_t microbatch)>;

/// A real device for a stage, and its data.
struct stage_backend {
  std::shared_ptr<gpu::stage_device> device;
  token_feed tokens;  // of the first and the last stage
};

struct stage_options {
  stage_setup setup;
  double came_s = 0;  // the setup, by this host's monotonic clock
  address trainer = 0;
  courier via;
  /// Creates the device, which may take minutes: the stage then has its own thread.
  std::function<expected<stage_backend>()> make;
  /// Set once it is created; may be null.
  std::shared_ptr<std::atomic<bool>> made;
  /// If neither created nor given: a simulated device, `slowdown` times slower than its costs
  /// (null: as given), ready after start_s.
  std::shared_ptr<gpu::stage_device> device;
  std::function<double()> slowdown;
  double start_s = 0;
  tensor_way beside;       // from its GPUs to others of their node, if it is simulated
  tensor_way slowest_lan;  // from another node of the datacenter, likewise
  token_feed tokens;       // of a real device's first and last stage
};

/// One pipeline stage: executes its order on its device, one step at a time, each as soon as its
/// inputs are available; then all-reduces its gradients with its peers, updates, and starts the
/// next iteration.
class stage_state {
 public:
  stage_state() = default;
  void start(stage_actor::pointer self, stage_options o);
  void run(const stage_run& r);
  void receive(const tensor& t, const payload& body);
  void send_again(const tensor_request& r);
  void retire();
  void finished(expected<gpu::outcome> r);
  void arrived(const tensor& t, const payload& body);

 private:
  enum class phase { loading, group_id, joining, steps, gradients, exchange, update, saving };
  /// Tensors received for one iteration; peers are at most one iteration ahead.
  struct inbox {
    std::uint64_t iteration = 0;
    std::vector<std::optional<payload>> activation, gradient;  // by micro-batch
    gradient_all_reduce sum;
    device_all_reduce among_devices;
    tensor_ways ways;
  };

  bool make_device();
  void simulate();
  void load();
  void meet();
  void join(const stage_run& r);
  void advance();
  void begin_iteration();
  bool ready(const stage_step& s) const;
  void begin_step(const stage_step& s);
  void end_step(const stage_step& s, gpu::outcome o);
  void begin_gradients();
  void exchange(gpu::outcome o);
  void look_at_exchange();
  void look_at_devices();
  void update(payload own, payload tied);
  void end_iteration(const gpu::outcome& o);
  void save();
  void saved();
  void halt(const stage_run& r);
  void say_halted();
  void say_ready(stage_report ready = {});
  void say(stage_report r);
  void send_report(stage_report& r);
  void give_up(const reason& why);

  void submit(gpu::operation o);
  void send(tensor::kind what, std::uint32_t to_pipeline, std::uint32_t to_stage,
            std::uint32_t microbatch, payload body, std::uint64_t bytes, const wan_share& share);
  void send_parcels(std::vector<gradient_all_reduce::parcel> parcels);
  address place_of(std::uint32_t pipeline, std::uint32_t stage) const {
    const auto& s = o_.setup;
    return pipeline == s.name.pipeline ? s.neighbours[stage] : s.peers[pipeline];
  }
  bool came_before(const inbox& box, const tensor& t) const;
  bool waits_for_neighbour() const;
  double request_after_s(tensor::kind k) const;
  void await_tensors();
  void look_for_missing_at(double at_s);
  void look_for_missing();
  std::vector<tensor_request> missing() const;
  void note(std::uint8_t what, std::uint32_t microbatch, double took_s);
  inbox& inbox_of(std::uint64_t iteration) { return inboxes_[iteration % 2]; }
  inbox& current() { return inbox_of(iteration_); }
  const inbox& current() const { return inboxes_[iteration_ % 2]; }
  void clear(inbox& box, std::uint64_t iteration);
  bool first() const { return o_.setup.name.stage == 0; }
  /// By the training's clock.
  double time() const { return o_.via.now_s() - ahead_s_; }
  bool last() const { return o_.setup.name.stage + 1 == o_.setup.stages; }

  stage_actor::pointer self_ = nullptr;
  stage_options o_;
  bool simulated_ = false;
  std::unique_ptr<simulated_link> beside_;  // if it is
  phase phase_ = phase::loading;
  bool busy_ = false;
  bool broken_ = false;
  bool joined_ = false;          // its device and its peers' sum among themselves
  std::uint64_t iteration_ = 0;  // done
  std::uint64_t until_ = 0, heard_ = 0, saved_ = 0;
  bool halted_ = false;           // it was told to: only a run that names the last iteration counts
  std::uint64_t save_at_ = 0;     // the last iteration, after which it saves; 0: not yet known
  std::size_t next_ = 0;          // of the order
  std::vector<bool> recomputes_;  // by micro-batch
  std::array<inbox, 2> inboxes_;  // this iteration's and the next one's
  sent_tensors sent_;
  request_timeout timeout_;
  // The iteration and step that wait for a tensor, since when, when that is asked for, and when
  // the timer looks.
  static constexpr double never_s = std::numeric_limits<double>::infinity();
  std::pair<std::uint64_t, std::size_t> awaited_{~std::uint64_t{0}, 0};
  double waits_since_s_ = 0, ask_at_s_ = 0, look_at_s_ = never_s;
  bool retired_ = false;  // its part is over
  std::uint64_t own_bytes_ = 0, tied_bytes_ = 0;
  std::uint64_t activation_bytes_ = 0, input_bytes_ = 0;  // what it hands on, and what it gets
  double exchange_began_s_ = 0;
  stage_report doing_;  // the present iteration
  operation_times times_;
  double asked_s_ = 0;  // when the device was last given something, by this host's clock
  // How far that is ahead of the training's; what the trainer said last, and when that came.
  double ahead_s_ = 0, told_s_ = 0, came_s_ = 0;
  double loss_sum_ = 0;
  std::uint32_t held_ = 0;
  std::deque<stage_report> unheard_;
};

stage_actor::behavior_type stage(stage_actor::stateful_pointer<stage_state> self, stage_options o);

}  // namespace troupe::actors
