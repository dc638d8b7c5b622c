#include "gpu/worker/worker_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/device/clock.hpp"
#include "gpu/model/digest.hpp"
#include "gpu/worker/tensors.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::python {

namespace {

/// A request with the part that all operations have.
request_header request_of(const layered& p) {
  request_header r;
  r.iteration = p.iteration;
  r.value = 1;  // rank 0 of one member
  if (p.squared_norm) {
    r.squared_norm = *p.squared_norm;
    r.flags |= request_flag::with_norm;
  }
  if (p.evaluate) r.flags |= request_flag::evaluate;
  if (p.number) {
    r.value = *p.number;
    r.flags |= request_flag::numbered;
  }
  return r;
}

/// A group's id: any bytes.
std::string text_of(const payload& p) {
  return {reinterpret_cast<const char*>(p.bytes().data()), p.bytes().size()};
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

void device::submit(operation o, done d) {
  queue_.submit(std::move(o), std::move(d),
                [this](const auto& what, const operation& all, const done& completed) {
                  time(what, all.program, all.timed, completed);
                });
}

void device::submit_norms(operations::norms n, done d) {
  queue_.submit(
      [this, n = std::move(n)](const done& completed) {
        time(n, {.iteration = n.iteration}, false, completed);
      },
      std::move(d));
}

// By processor time, as of the CPU's engine: waiting for a processor is not part of a slower
// machine's work.
template <class What>
void device::time(const What& o, const layered& p, bool timed, const done& completed) {
  began_s_ = now_s();
  const auto ok = progress_.check(o);
  auto made = ok || p.evaluate ? perform(o, request_of(p)) : refuse(ok.error());
  if (made && emulate_speed_ < 1) {
    const double until_s = began_s_ + made->compute_s / emulate_speed_;
    std::this_thread::sleep_for(std::chrono::duration<double>{until_s - now_s()});
    made->begin_s = began_s_;
    made->end_s = now_s();
  }
  if (made) made->compute_s = timed ? made->end_s - made->begin_s : 0;
  completed(std::move(made));
}

// -- tensors

/// The tensors of an operation in a buffer; null: it takes none.
expected<std::shared_ptr<shared_buffer>> device::bring(message_kind what, const payload& in,
                                                       bool wanted) {
  const auto bytes = in.bytes();
  if (bytes.empty() == wanted)
    return refuse(reason::kind::invalid, "{} on this stage takes {} payloads, got {}",
                  name_of(what), wanted ? 1 : 0, wanted ? 0 : 1);
  if (!wanted) return std::shared_ptr<shared_buffer>{};
  if (auto read = read_tensors(bytes); !read) return refuse(read.error());
  auto taken = buffers_.take(bytes.size());
  if (!taken) return taken;
  std::memcpy((*taken)->bytes().data(), bytes.data(), bytes.size());
  largest_in_ = std::max<std::uint64_t>(largest_in_, bytes.size());
  return taken;
}

/// `out_bytes`: of the buffer for its output, which is larger if it must be; 0: it has none.
expected<device::computed> device::compute(request_header r, std::uint64_t out_bytes) {
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
  auto answer = worker_->ask(r);
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

/// The output, if there is one, as a payload, which owns its buffer. If memory is short it is a
/// copy, so that the next operation finds a buffer.
expected<payload> device::deliver(const computed& c) {
  if (!c.out) return payload{};
  const auto bytes = c.out->bytes();
  if (auto read = read_tensors(bytes); !read) return refuse(worker_->violated(read.error()));
  largest_out_ =
      std::max<std::uint64_t>(largest_out_ == first_guess ? 0 : largest_out_, bytes.size());
  if (is_short()) return payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
  return as_payload(c.out);
}

// The times are the worker's own, which may be anything.
outcome device::outcome_of(const reply& r, decltype(outcome::what) what) const {
  const double now = now_s();
  outcome o{std::move(what)};
  o.begin_s = std::clamp(static_cast<double>(r.header.begin_ns) * 1e-9, began_s_, now);
  o.end_s = std::clamp(static_cast<double>(r.header.end_ns) * 1e-9, o.begin_s, now);
  o.compute_s = r.header.cpu_us * 1e-6;
  return o;
}

device::result device::plain(request_header r, std::string_view body) {
  const auto answer = worker_->ask(r, body);
  if (!answer) return refuse(answer.error());
  return outcome_of(*answer, {});
}

// -- passes

device::result device::perform(const operations::forward& o, request_header r) {
  const bool evaluates = (r.flags & request_flag::evaluate) != 0;
  r.kind = message_kind::forward;
  r.microbatch = o.microbatch;
  if (o.keep) r.flags |= request_flag::keep;
  auto in = bring(r.kind, o.input, !first());
  if (!in) return refuse(in.error());
  if (*in) {
    r.in = packed((*in)->place());
    if (is_short()) {
      r.flags |= request_flag::copy_input;
    } else if (!evaluates) {
      held_[o.microbatch] = *in;
    }
  }
  const auto made = compute(r, last() ? 0 : largest_out_);
  if (!made) {
    held_.erase(o.microbatch);
    return refuse(made.error());
  }
  if (!evaluates) progress_.went_forward(o.microbatch, o.keep);
  auto values = read_values(made->answer.body);
  if (!values) return refuse(worker_->violated(values.error()));
  auto out = deliver(*made);
  if (!out) return refuse(out.error());
  return outcome_of(
      made->answer,
      operations::forward::result{std::move(*out), made->answer.header.loss, std::move(*values)});
}

device::result device::perform(const operations::recompute& o, request_header r) {
  r.kind = message_kind::recompute;
  r.microbatch = o.microbatch;
  auto made = plain(r);
  if (made) progress_.went_forward(o.microbatch, true);
  return made;
}

device::result device::perform(const operations::backward& o, request_header r) {
  r.kind = message_kind::backward;
  r.microbatch = o.microbatch;
  if (o.last) r.flags |= request_flag::last_backward;
  auto in = bring(r.kind, o.gradient, !last());
  if (!in) return refuse(in.error());
  if (*in) r.in = packed((*in)->place());
  const auto made = compute(r, first() ? 0 : std::max(largest_in_, largest_out_));
  if (!made) return refuse(made.error());
  held_.erase(o.microbatch);
  progress_.forget(o.microbatch);
  auto out = deliver(*made);
  if (!out) return refuse(out.error());
  return outcome_of(made->answer, operations::backward::result{std::move(*out)});
}

// -- gradients

device::result device::perform(const operations::reset&, request_header r) {
  r.kind = message_kind::reset;
  auto made = plain(r);
  if (!made) return made;
  held_.clear();
  progress_.clear();
  taken_ = false;
  return made;
}

// Gradients that are taken are copies: other micro-batches may go through the stage before its
// update.
device::result device::perform(const operations::gradients& o, request_header r) {
  r.kind = message_kind::gradients;
  auto made = plain(r);
  if (!made) return made;
  if (!o.take) {
    made->what = own_and_tied{view(gradients_.own()), view(gradients_.tied())};
    return made;
  }
  const auto copy_of = [](std::span<const std::byte> of) {
    return payload{std::vector<std::byte>{of.begin(), of.end()}};
  };
  made->what = own_and_tied{copy_of(gradients_.own()), copy_of(gradients_.tied())};
  r.kind = message_kind::zero;
  const auto zero = worker_->ask(r);
  if (!zero) return refuse(zero.error());
  if ((zero->header.flags & reply_flag::moved) != 0) moves_ = true;
  taken_ = true;
  return made;
}

// Sums that are in the gradients' memory already are not copied. An empty payload says so, too.
// Where gradients were taken, the worker's next norms and update are of that memory only after it
// has been asked for gradients again.
expected<void> device::take_sums(const own_and_tied& sums) {
  if (std::exchange(taken_, false)) {
    request_header again;
    again.kind = message_kind::gradients;
    if (auto ok = worker_->ask(again); !ok) return refuse(ok.error());
  }
  const std::pair<std::span<const std::byte>, std::span<std::byte>> both[] = {
      {sums.own.bytes(), gradients_.own()}, {sums.tied.bytes(), gradients_.tied()}};
  for (const auto& [from, to] : both) {
    if (from.size() != to.size() && !from.empty())
      return refuse(reason::kind::invalid, "the gradients have {} and {} bytes, got {}",
                    both[0].second.size(), both[1].second.size(), from.size());
    if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
  }
  return {};
}

device::result device::perform(const operations::update& o, request_header r) {
  if (auto ok = take_sums(o.sums); !ok) return refuse(ok.error());
  r.kind = message_kind::update;
  r.scale = o.scale;
  const auto answer = worker_->ask(r);
  if (!answer) return refuse(answer.error());
  const auto& h = answer->header;
  return outcome_of(*answer, operations::update::result{h.squared_norm, h.peak_bytes,
                                                        (h.flags & reply_flag::skipped) != 0});
}

device::result device::perform(const operations::norms& o, request_header r) {
  if (auto ok = take_sums(o.sums); !ok) return refuse(ok.error());
  r.kind = message_kind::norms;
  const auto answer = worker_->ask(r);
  if (!answer) return refuse(answer.error());
  auto numbers = read_numbers(answer->body, stage_.layers);
  if (!numbers) return refuse(worker_->violated(numbers.error()));
  return outcome_of(*answer, operations::norms::result{std::move(*numbers)});
}

device::result device::perform(const operations::save& o, request_header r) {
  r.kind = message_kind::save;
  return plain(r, path_body(o.path, o.whole));
}

device::result device::perform(const operations::load& o, request_header r) {
  r.kind = message_kind::load;
  auto made = plain(r, path_body(o.path));
  if (made) {
    held_.clear();
    progress_.clear();
  }
  return made;
}

expected<reply> device::group(request_header r, std::uint32_t rank, std::uint32_t size,
                              std::string_view id) {
  constexpr std::size_t max_id_bytes = 256;
  r.value = std::uint64_t{rank} << 32 | size;
  auto answer = worker_->ask(r, id);
  if (answer && answer->body.size() > max_id_bytes)
    return refuse(
        worker_->violated(because(reason::kind::malformed,
                                  "the worker's group has an id of {} bytes, expected {} at "
                                  "most",
                                  answer->body.size(), max_id_bytes)));
  return answer;
}

// Only a group's first member makes its id.
device::result device::perform(const operations::make_communicator_id& o, request_header r) {
  r.kind = message_kind::group;
  const auto answer = group(r, o.rank, o.size, {});
  if (!answer) return refuse(answer.error());
  return outcome_of(
      *answer,
      operations::make_communicator_id::result{
          o.rank == 0 ? payload{std::vector<char>{answer->body.begin(), answer->body.end()}}
                      : payload{}});
}

device::result device::perform(const operations::join_communicator& o, request_header r) {
  r.kind = message_kind::join;
  const auto answer = group(r, o.rank, o.size, text_of(o.id));
  if (!answer) return refuse(answer.error());
  return outcome_of(*answer, {});
}

// The tied gradients are summed where their first half is, in the first stage; the last one's, and
// their sum, are the result, which is on its way when the next operation changes the memory.
device::result device::perform(const operations::sum& o, request_header r) {
  const bool has_tied = !gradients_.tied().empty(), tied = first() && has_tied;
  if (o.tied && (!tied || o.tied->bytes().size() != gradients_.tied().size()))
    return refuse(reason::kind::invalid,
                  "sum takes no payload, or in the first stage the other one's tied gradients");
  if (o.tied) add(gradients_.tied(), o.tied->bytes());
  r.kind = message_kind::sum;
  if (tied) r.flags |= request_flag::with_tied;
  auto made = plain(r);
  if (!made) return made;
  auto& sums = made->what.emplace<operations::sum::result>();
  if (has_tied && first() != last()) {
    const auto bytes = gradients_.tied();
    sums.tied = payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
  }
  return made;
}

device::result device::perform(const operations::weights&, request_header r) {
  constexpr std::uint64_t description_bytes = 1024;
  r.kind = message_kind::weights;
  const auto made = compute(r, gradients_.bytes() + description_bytes);
  if (!made) return refuse(made.error());
  const auto body = as_payload(made->out);
  const auto read = read_tensors(body.bytes());
  if (!read) return refuse(worker_->violated(read.error()));
  if (read->size() != 2 || (*read)[0].data.size() != gradients_.own().size() ||
      (*read)[1].data.size() != gradients_.tied().size())
    return refuse(worker_->violated(
        {reason::kind::malformed, "the worker's weights have other sizes than its gradients"}));
  return outcome_of(made->answer, own_and_tied{payload{body.owner(), (*read)[0].data},
                                               payload{body.owner(), (*read)[1].data}});
}

// The weights come through a buffer, and the node hashes them: a worker needs no hash of its own.
device::result device::perform(const operations::digest&, request_header r) {
  auto made = perform(operations::weights{}, r);
  if (made) made->what = digest_of(made->of<operations::weights>());
  return made;
}

}  // namespace troupe::gpu::python
