#include "gpu/worker/worker_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device/clock.hpp"
#include "gpu/worker/tensors.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::python {

namespace {

using kind = operation::kind;

message_kind message_of(kind k) {
  switch (k) {
    case kind::forward:
      return message_kind::forward;
    case kind::recompute:
      return message_kind::recompute;
    case kind::backward:
      return message_kind::backward;
    case kind::gradients:
      return message_kind::gradients;
    case kind::update:
      return message_kind::update;
    case kind::make_communicator_id:
      return message_kind::group;
    case kind::join_communicator:
      return message_kind::join;
    case kind::sum:
      return message_kind::sum;
    case kind::save:
      return message_kind::save;
    case kind::load:
      return message_kind::load;
    case kind::norms:
      return message_kind::norms;
    case kind::weights:
    case kind::values:
      return message_kind::weights;
  }
  return message_kind::weights;
}

request_header request_of(const operation& o) {
  request_header r;
  r.kind = message_of(o.what);
  r.iteration = o.iteration;
  r.microbatch = o.microbatch;
  r.scale = o.scale;
  if (o.squared_norm) {
    r.squared_norm = *o.squared_norm;
    r.flags |= request_flag::with_norm;
  }
  if (o.keep) r.flags |= request_flag::keep;
  if (o.evaluate) r.flags |= request_flag::evaluate;
  if (o.last_backward) r.flags |= request_flag::last_backward;
  r.value = std::uint64_t{o.rank} << 32 | o.size;
  return r;
}

/// A group's id: any bytes.
std::string text_of(const payload& p) {
  return {reinterpret_cast<const char*>(p.bytes().data()), p.bytes().size()};
}

payload payload_of(std::string_view text) {
  const auto* at = reinterpret_cast<const std::byte*>(text.data());
  return payload{std::vector<std::byte>{at, at + text.size()}};
}

void add(std::span<std::byte> to, std::span<const std::byte> more) {
  for (std::size_t at = 0; at < to.size(); at += sizeof(float)) {
    float a = 0, b = 0;
    std::memcpy(&a, to.data() + at, sizeof a);
    std::memcpy(&b, more.data() + at, sizeof b);
    a += b;
    std::memcpy(to.data() + at, &a, sizeof a);
  }
}

}  // namespace

// By processor time, as of the CPU's engine: waiting for a processor is not part of a slower
// machine's work.
void device::time(const operation& o, const done& completed) {
  began_s_ = now_s();
  auto result = run(o);
  if (result && emulate_speed_ < 1) {
    const double until_s = began_s_ + result->compute_s / emulate_speed_;
    std::this_thread::sleep_for(std::chrono::duration<double>{until_s - now_s()});
    result->begin_s = began_s_;
    result->end_s = now_s();
  }
  if (result) result->compute_s = o.timed ? result->end_s - result->begin_s : 0;
  completed(std::move(result));
}

expected<outcome> device::run(const operation& o) {
  if (auto ok = progress_.check(o); !ok && !o.evaluate) return refuse(ok.error());
  switch (o.what) {
    case kind::forward:
      return forward(o);
    case kind::recompute:
      return recompute(o);
    case kind::backward:
      return backward(o);
    case kind::gradients:
      return gradients(o);
    case kind::update:
      return update(o);
    case kind::norms:
      return norms(o);
    case kind::save:
    case kind::load:
      return file(o);
    case kind::make_communicator_id:
    case kind::join_communicator:
      return group(o);
    case kind::sum:
      return sum(o);
    case kind::weights:
      return weights(o);
    case kind::values:
      break;
  }
  return refuse(reason::kind::invalid, "unsupported operation");
}

// -- tensors

/// The tensors of an operation in a buffer; null: it takes none.
expected<std::shared_ptr<shared_buffer>> device::bring(const operation& o, bool wanted) {
  if (o.in.size() != (wanted ? 1 : 0))
    return refuse(reason::kind::invalid, "{} on this stage takes {} payloads, got {}",
                  name_of(message_of(o.what)), wanted ? 1 : 0, o.in.size());
  if (!wanted) return std::shared_ptr<shared_buffer>{};
  const auto bytes = o.in[0].bytes();
  if (auto read = read_tensors(bytes); !read) return refuse(read.error());
  auto taken = buffers_.take(bytes.size());
  if (!taken) return taken;
  std::memcpy((*taken)->bytes().data(), bytes.data(), bytes.size());
  largest_in_ = std::max<std::uint64_t>(largest_in_, bytes.size());
  return taken;
}

/// `out_bytes`: of the buffer for its output, which is larger if it must be; 0: it has none.
expected<device::computed> device::compute(request_header r, std::uint64_t out_bytes,
                                           std::string_view body) {
  computed c;
  const auto take = [&](std::uint64_t bytes) -> expected<void> {
    c.out = nullptr;
    auto taken = buffers_.take(bytes);
    if (!taken) return refuse(taken.error());
    c.out = std::move(*taken);
    r.out = packed(c.out->place());
    return give_regions();
  };
  if (auto ok = out_bytes > 0 ? take(out_bytes) : give_regions(); !ok) return refuse(ok.error());
  auto answer = worker_->ask(r, body);
  if (!answer) return refuse(answer.error());
  c.answer = std::move(*answer);
  auto out = c.answer.header.out;
  if ((c.answer.header.flags & reply_flag::larger) != 0) {
    if (auto ok = take(unpacked(out).bytes); !ok) return refuse(ok.error());
    r.kind = message_kind::output;
    r.in = 0;
    r.flags = 0;
    const auto again = worker_->ask(r);
    if (!again) return refuse(again.error());
    if ((again->header.flags & reply_flag::larger) != 0)
      return refuse(worker_->violated(
          {reason::kind::malformed, "the worker asks for a larger buffer a second time"}));
    out = again->header.out;
  }
  const auto used = unpacked(out).bytes;
  if (out_bytes > 0 && used == 0)
    return refuse(worker_->violated(
        because(reason::kind::malformed, "the worker's reply has no output, expected one")));
  if (c.out) c.out->shorten(used);
  return c;
}

/// The worker must have a region before it is asked to use a buffer there.
expected<void> device::give_regions() {
  for (const auto& region : buffers_.take_new_regions()) {
    request_header r;
    r.kind = message_kind::region;
    r.in = packed({region.number, 0, 0});
    r.value = region.memory->bytes().size();
    if (auto ok = worker_->ask(r, {}, region.memory->file()); !ok) return refuse(ok.error());
    region.memory->close_file();
  }
  return {};
}

/// The output as a payload, which owns its buffer. If memory is short it is a copy, so that the
/// next operation finds a buffer.
expected<payload> device::deliver(const computed& c) {
  const auto bytes = c.out->bytes();
  if (auto read = read_tensors(bytes); !read) return refuse(worker_->violated(read.error()));
  largest_out_ =
      std::max<std::uint64_t>(largest_out_ == first_guess ? 0 : largest_out_, bytes.size());
  if (is_short()) return payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
  return as_payload(c.out);
}

expected<outcome> device::with_output(outcome result, const computed& c) {
  auto body = deliver(c);
  if (!body) return refuse(body.error());
  result.out = {std::move(*body)};
  return result;
}

// The times are the worker's own, which may be anything.
outcome device::outcome_of(const reply& r) const {
  const double now = now_s();
  outcome o;
  o.begin_s = std::clamp(static_cast<double>(r.header.begin_ns) * 1e-9, began_s_, now);
  o.end_s = std::clamp(static_cast<double>(r.header.end_ns) * 1e-9, o.begin_s, now);
  o.compute_s = r.header.cpu_us * 1e-6;
  o.loss = r.header.loss;
  o.squared_norm = r.header.squared_norm;
  o.peak_bytes = r.header.peak_bytes;
  o.skipped = (r.header.flags & reply_flag::skipped) != 0;
  return o;
}

expected<outcome> device::plain(request_header r, std::string_view body) {
  const auto answer = worker_->ask(r, body);
  if (!answer) return refuse(answer.error());
  return outcome_of(*answer);
}

// -- passes

expected<outcome> device::forward(const operation& o) {
  auto in = bring(o, !first());
  if (!in) return refuse(in.error());
  auto r = request_of(o);
  if (*in) {
    r.in = packed((*in)->place());
    if (is_short()) {
      r.flags |= request_flag::copy_input;
    } else if (!o.evaluate) {
      held_[o.microbatch] = *in;
    }
  }
  const auto made = compute(r, last() ? 0 : largest_out_);
  if (!made) {
    held_.erase(o.microbatch);
    return refuse(made.error());
  }
  if (!o.evaluate) progress_.went_forward(o.microbatch, o.keep);
  auto result = outcome_of(made->answer);
  auto values = read_values(made->answer.body);
  if (!values) return refuse(worker_->violated(values.error()));
  result.more = std::move(*values);
  if (last()) return result;
  return with_output(std::move(result), *made);
}

expected<outcome> device::recompute(const operation& o) {
  auto result = plain(request_of(o));
  if (result) progress_.went_forward(o.microbatch, true);
  return result;
}

expected<outcome> device::backward(const operation& o) {
  auto in = bring(o, !last());
  if (!in) return refuse(in.error());
  auto r = request_of(o);
  if (*in) r.in = packed((*in)->place());
  const auto made = compute(r, first() ? 0 : std::max(largest_in_, largest_out_));
  if (!made) return refuse(made.error());
  held_.erase(o.microbatch);
  progress_.forget(o.microbatch);
  if (first()) return outcome_of(made->answer);
  return with_output(outcome_of(made->answer), *made);
}

// -- gradients

expected<outcome> device::gradients(const operation& o) {
  auto result = plain(request_of(o));
  if (result) result->out = {view(gradients_.own()), view(gradients_.tied())};
  return result;
}

// Sums that are in the gradients' memory already are not copied. An empty payload says so, too.
expected<void> device::take_sums(const operation& o) {
  if (!o.in.empty() && o.in.size() != 2)
    return refuse(reason::kind::invalid, "{} takes no payloads or two, got {}",
                  name_of(message_of(o.what)), o.in.size());
  const std::span<std::byte> to[] = {gradients_.own(), gradients_.tied()};
  for (std::size_t i = 0; i < o.in.size(); ++i) {
    const auto from = o.in[i].bytes();
    if (from.size() != to[i].size() && !from.empty())
      return refuse(reason::kind::invalid, "the gradients have {} and {} bytes, got {}",
                    to[0].size(), to[1].size(), from.size());
    if (!from.empty() && from.data() != to[i].data())
      std::memcpy(to[i].data(), from.data(), from.size());
  }
  return {};
}

expected<outcome> device::update(const operation& o) {
  if (auto ok = take_sums(o); !ok) return refuse(ok.error());
  return plain(request_of(o));
}

expected<outcome> device::norms(const operation& o) {
  if (auto ok = take_sums(o); !ok) return refuse(ok.error());
  auto r = request_of(o);
  const auto answer = worker_->ask(r);
  if (!answer) return refuse(answer.error());
  auto numbers = read_numbers(answer->body, stage_.layers);
  if (!numbers) return refuse(worker_->violated(numbers.error()));
  auto result = outcome_of(*answer);
  result.norms = std::move(*numbers);
  return result;
}

expected<outcome> device::file(const operation& o) {
  auto result = plain(request_of(o), path_body(o.path));
  if (result && o.what == kind::load) {
    held_.clear();
    progress_.clear();
  }
  return result;
}

// Only a group's first member makes its id.
expected<outcome> device::group(const operation& o) {
  constexpr std::size_t max_id_bytes = 256;
  auto r = request_of(o);
  const auto answer = worker_->ask(r, o.in.empty() ? std::string{} : text_of(o.in[0]));
  if (!answer) return refuse(answer.error());
  if (answer->body.size() > max_id_bytes)
    return refuse(
        worker_->violated(because(reason::kind::malformed,
                                  "the worker's group has an id of {} bytes, expected {} at "
                                  "most",
                                  answer->body.size(), max_id_bytes)));
  auto result = outcome_of(*answer);
  if (o.what == kind::make_communicator_id && o.rank == 0) result.out = {payload_of(answer->body)};
  return result;
}

// The tied gradients are summed where their first half is, in the first stage; the last one's, and
// their sum, are the result, which is on its way when the next operation changes the memory.
expected<outcome> device::sum(const operation& o) {
  const bool has_tied = !gradients_.tied().empty(), tied = first() && has_tied;
  if (o.in.size() > 1 ||
      (o.in.size() == 1 && (!tied || o.in[0].bytes().size() != gradients_.tied().size())))
    return refuse(reason::kind::invalid,
                  "sum takes no payload, or in the first stage the other one's tied gradients");
  if (!o.in.empty()) add(gradients_.tied(), o.in[0].bytes());
  auto r = request_of(o);
  if (tied) r.flags |= request_flag::with_tied;
  auto result = plain(r);
  if (result && has_tied && first() != last()) {
    const auto bytes = gradients_.tied();
    result->out = {payload{std::vector<std::byte>{bytes.begin(), bytes.end()}}};
  }
  return result;
}

expected<outcome> device::weights(const operation& o) {
  constexpr std::uint64_t description_bytes = 1024;
  const auto made = compute(request_of(o), gradients_.bytes() + description_bytes);
  if (!made) return refuse(made.error());
  const auto body = as_payload(made->out);
  const auto read = read_tensors(body.bytes());
  if (!read) return refuse(worker_->violated(read.error()));
  if (read->size() != 2 || (*read)[0].data.size() != gradients_.own().size() ||
      (*read)[1].data.size() != gradients_.tied().size())
    return refuse(worker_->violated(
        {reason::kind::malformed, "the worker's weights have other sizes than its gradients"}));
  auto result = outcome_of(made->answer);
  for (const auto& t : *read) result.out.emplace_back(body.owner(), t.data);
  return result;
}

}  // namespace troupe::gpu::python
