#include "actors/training/device/device_stage.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "actors/training/device/stage_backend.hpp"
#include "gpu/files/directory_entries.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::actors {

namespace {

std::string state_in(const socket_folder& folder) {
  return folder.path() + "/state";
}

/// For two more as large as this one: the next is written beside the two that are kept.
bool has_room_beside(const socket_folder& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::uintmax_t bytes = 0;
  for (const auto& file : gpu::entries_of(state_in(folder), error)) {
    const auto size = fs::file_size(file, error);
    if (error) return false;
    bytes += size;
  }
  const auto room = fs::space(folder.path(), error);
  return !error && room.available >= 2 * bytes;
}

}  // namespace

bool device_stage::start(std::uint64_t iteration) {
  if (iteration == 0 || setup_.shares_with) return false;
  submit({gpu::operations::load{checkpoint_path(setup_.how.checkpoint, iteration)}});
  return true;
}

// The actor is named only while an operation is under way: a reference that the stage's own state
// held would keep the actor alive for ever.
gpu::stage_device::done device_stage::post() const {
  return [me = stage_actor{self_}, began = abandoned()](expected<gpu::outcome> r) {
    caf::anon_send(me, device_done{std::move(r), began});
  };
}

void device_stage::submit(gpu::operation o) {
  if (backend_.device) backend_.device->submit(std::move(o), post());
}

void device_stage::submit_norms(gpu::operations::norms n) {
  if (backend_.norms) backend_.norms->submit_norms(std::move(n), post());
}

// The device writes what a checkpoint would have, so that the state is read back as that is. A
// folder that cannot be made is that of the whole node's: the device says so, as of a checkpoint.
void device_stage::submit_state(const state_name& which) {
  state_ = which;
  state_folder_.reset();
  if (auto made = socket_folder::make_in_memory()) state_folder_.emplace(std::move(*made));
  submit({gpu::operations::save{.path = state_path(), .whole = true},
          false,
          {.iteration = which.iteration}});
}

// A worker saves into memory, so that its end costs no file of an iteration that it has done.
// Devices that share a stage have no copy of it in one piece: they write, and the stage waits. A
// newer lease that has opened the directory owns it: this one's training is over then, and must not
// write.
expected<void> device_stage::submit_copy(const std::string& directory, std::uint64_t iteration) {
  copied_for_ = directory;
  copy_folder_.reset();
  if (auto* device = dynamic_cast<gpu::member_device*>(backend_.device.get())) {
    device->submit_values(post());
    return {};
  }
  if (auto ok = gpu::check_fence(setup_.how.checkpoint, setup_.name.lease); !ok) return ok;
  if (setup_.how.program && !writes_itself_)
    if (auto made = socket_folder::make_in_memory())
      copy_folder_ = std::make_shared<socket_folder>(std::move(*made));
  submit({gpu::operations::save{copy_folder_ ? copy_folder_->path() + "/saved" : directory},
          false,
          {.iteration = iteration}});
  return {};
}

bool device_stage::can_write_itself() {
  const bool copied = copy_folder_ != nullptr;
  copy_folder_.reset();
  writes_itself_ = writes_itself_ || copied;
  return copied;
}

gpu::checkpoint_writer::work device_stage::take_copy(gpu::outcome copied) {
  if (auto* values = std::get_if<gpu::operations::values::result>(&copied.what))
    return writing_of(setup_, copied_for_, std::move(*values));
  if (!copy_folder_) return nullptr;
  return [from = std::exchange(copy_folder_, nullptr), to = copied_for_,
          root = setup_.how.checkpoint, lease = setup_.name.lease]() -> expected<void> {
    if (auto ok = gpu::check_fence(root, lease); !ok) return ok;
    return copy_state(from->path() + "/saved", to);
  };
}

std::string device_stage::state_path() const {
  return state_folder_ ? state_in(*state_folder_) : "/dev/null/state";
}

expected<payload> device_stage::take_state() {
  auto all = read_state(state_path(), state_);
  state_folder_.reset();
  return all;
}

// The folder remains until the device has read it, and the stage has its next one.
expected<void> device_stage::submit_new_state(const payload& state, const state_name& which) {
  auto made = socket_folder::make_in_memory();
  if (!made) return refuse(made.error());
  state_folder_.emplace(std::move(*made));
  if (auto ok = write_state(state_path(), state, which); !ok) return ok;
  submit({gpu::operations::load{state_path()}});
  return {};
}

std::shared_ptr<const socket_folder> device_stage::take_state_folder() {
  if (!state_folder_ || !has_room_beside(*state_folder_)) return nullptr;
  auto folder = std::make_shared<const socket_folder>(std::move(*state_folder_));
  state_folder_.reset();
  return folder;
}

void device_stage::submit_state_folder(const std::shared_ptr<const socket_folder>& from) {
  taken_folder_ = from;
  submit({gpu::operations::load{state_in(*from)}});
}

expected<void> device_stage::add_inputs(gpu::operations::forward& step, std::uint64_t iteration,
                                        payload activation) {
  const bool first = setup_.name.stage == 0, last = setup_.name.stage + 1 == setup_.stages;
  if (!backend_.tokens || (!first && !last)) {
    if (!first) step.input = std::move(activation);
    return {};
  }
  auto read = backend_.tokens(iteration, step.microbatch);
  if (!read) return refuse(read.error());
  auto& [tokens, targets] = *read;
  step.input = first ? std::move(tokens) : std::move(activation);
  if (last) step.targets = std::move(targets);
  return {};
}

stage_gradients device_stage::take_gradients(gpu::own_and_tied gradients) const {
  stage_gradients g{std::move(gradients.own), std::move(gradients.tied)};
  g.own_bytes = g.own.bytes().size();
  g.tied_bytes = g.tied.bytes().size();
  return g;
}

bool device_stage::may_join_group() const {
  return sums_on_devices(setup_.how, setup_.backend);
}

double device_stage::expected_transfer_s(std::uint64_t bytes) const {
  constexpr double bytes_s = 125e6;  // 1 Gbit/s: a slow link, since a request too early costs more
  return static_cast<double>(bytes) / bytes_s;
}

}  // namespace troupe::actors
