#include "gpu/emulation/emulated_nccl.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/late_stream.hpp"

namespace troupe::test {

namespace {

using namespace troupe::gpu::cuda;

constexpr int system_error = 2, invalid_usage = 5;
int faulty_rank = -1, faulty_sum = 0;
std::atomic<bool> refuses{false};

struct values {
  void* at = nullptr;
  std::size_t count = 0;
  bool narrow = false;
};

/// The values that the members of one sum have brought.
struct sum_round {
  std::map<int, values> brought;
  int waiting = 0;  // members
  bool done = false;
};

struct room {
  std::mutex guard;
  std::condition_variable changed;
  int size = 0;
  std::map<int, bool> members;  // by rank: is it still there?
  std::map<int, sum_round> rounds;
  std::size_t leaving = 0;           // members
  bool failed = false, cut = false;  // cut: a member was aborted
};

struct member {
  std::shared_ptr<room> in;
  int rank = 0, next = 0, done = 0;
  bool ended = false, leaves = false;
};

std::atomic<int> destroyed{0}, aborted{0};

std::mutex rooms_guard;
std::map<std::uint64_t, std::shared_ptr<room>> rooms;
std::uint64_t last_room = 0;

float read(const values& v, std::size_t i) {
  return v.narrow ? to_float(static_cast<const bf16*>(v.at)[i])
                  : static_cast<const float*>(v.at)[i];
}
void write(const values& v, std::size_t i, float value) {
  if (v.narrow)
    static_cast<bf16*>(v.at)[i] = to_bf16(value);
  else
    static_cast<float*>(v.at)[i] = value;
}

/// As a ring does: each of its parts begins with another member.
void add_up(const std::map<int, values>& brought) {
  const auto members = brought.size(), n = brought.begin()->second.count;
  for (std::size_t i = 0; i < n; ++i) {
    const auto first = i * members / n + 1;
    float sum = 0;
    for (std::size_t m = 0; m < members; ++m) {
      const auto& v = brought.at(static_cast<int>((first + m) % members));
      sum = m == 0 ? read(v, i) : sum + read(v, i);
      if (v.narrow) sum = to_float(to_bf16(sum));
    }
    for (const auto& [rank, v] : brought) write(v, i, sum);
  }
}

std::shared_ptr<member> member_of(void* m) {
  return *static_cast<std::shared_ptr<member>*>(m);
}

int make_id(void* id) {
  std::lock_guard lock{rooms_guard};
  ++last_room;
  rooms[last_room] = std::make_shared<room>();
  std::memset(id, 0, collectives::id_bytes);
  std::memcpy(id, &last_room, sizeof last_room);
  return collectives::well;
}

int join(void** to, int size, const void* id, int rank) {
  std::uint64_t number = 0;
  std::memcpy(&number, id, sizeof number);
  std::shared_ptr<room> r;
  {
    std::lock_guard lock{rooms_guard};
    if (!rooms.contains(number)) return invalid_usage;
    r = rooms[number];
  }
  std::lock_guard lock{r->guard};
  if (rank >= size || r->members.contains(rank)) return invalid_usage;
  r->size = size;
  r->members[rank] = true;
  r->changed.notify_all();
  auto m = std::make_shared<member>();
  m->in = r;
  m->rank = rank;
  *to = new std::shared_ptr<member>(std::move(m));
  return collectives::under_way;
}

int state(void* of, int* now) {
  const auto m = member_of(of);
  std::lock_guard lock{m->in->guard};
  const auto size = static_cast<std::size_t>(m->in->size);
  // All of a host leave together, and none before its sums are done.
  const bool all =
      m->leaves ? m->in->leaving == size && m->done == m->next : m->in->members.size() == size;
  if (refuses) {
    *now = invalid_usage;
    return collectives::well;
  }
  *now = (m->in->failed && m->rank == faulty_rank) || (m->leaves && m->in->cut) ? system_error
         : all                                                                  ? collectives::well
               : collectives::under_way;
  return collectives::well;
}

void sum_now(const std::shared_ptr<member>& m, int number, values mine) {
  auto& r = *m->in;
  std::unique_lock lock{r.guard};
  if (m->ended) return;
  if (faulty_rank >= 0 && number >= faulty_sum) r.failed = true;
  auto& round = r.rounds[number];
  round.brought[m->rank] = mine;
  r.changed.notify_all();
  if (!r.failed && round.brought.size() == static_cast<std::size_t>(r.size)) {
    add_up(round.brought);
    round.done = true;
    members_wait(-std::exchange(round.waiting, 0));
  }
  if (round.done) {
    ++m->done;
    return;
  }
  ++round.waiting;
  members_wait(1);
  r.changed.wait(lock, [&] { return round.done || m->ended; });
  if (round.done) {
    ++m->done;
    return;
  }
  round.brought.erase(m->rank);
  --round.waiting;
  members_wait(-1);
}

int sum(void* of, void* at, std::size_t count, bool narrow, void* stream) {
  const auto m = member_of(of);
  static_cast<emulated_stream*>(stream)->ask(
      [m, number = m->next++, v = values{at, count, narrow}] { sum_now(m, number, v); });
  return collectives::well;
}

int finalize(void* of) {
  const auto m = member_of(of);
  std::lock_guard lock{m->in->guard};
  if (m->leaves) return invalid_usage;
  m->leaves = true;
  ++m->in->leaving;
  return collectives::under_way;
}

int destroy(void* of) {
  const std::unique_ptr<std::shared_ptr<member>> holder{static_cast<std::shared_ptr<member>*>(of)};
  ++destroyed;
  return collectives::well;
}

int abort(void* of) {
  ++aborted;
  const std::unique_ptr<std::shared_ptr<member>> holder{static_cast<std::shared_ptr<member>*>(of)};
  auto& r = *(*holder)->in;
  {
    std::lock_guard lock{r.guard};
    (*holder)->ended = r.cut = true;
  }
  r.changed.notify_all();
  return collectives::well;
}

const char* says(int result) {
  return result == system_error    ? "unhandled system error"
         : result == invalid_usage ? "invalid usage"
                                   : "no error";
}

}  // namespace

const collectives& emulated_nccl() {
  static const collectives table{make_id, join, state, sum, finalize, destroy, abort, says};
  return table;
}

nccl_ends ends_so_far() {
  return {destroyed, aborted};
}

void await_waiting_member() {
  std::shared_ptr<room> r;
  {
    std::lock_guard lock{rooms_guard};
    r = rooms.at(last_room);
  }
  std::unique_lock lock{r->guard};
  r->changed.wait(lock, [&] {
    const bool some_are_missing = r->members.size() < static_cast<std::size_t>(r->size);
    return some_are_missing || std::ranges::any_of(r->rounds, [](const auto& round) {
             return !round.second.done && !round.second.brought.empty();
           });
  });
}

nccl_refusal::nccl_refusal() {
  refuses = true;
}

nccl_refusal::~nccl_refusal() {
  refuses = false;
}

nccl_fault::nccl_fault(int rank, int sum) {
  faulty_rank = rank;
  faulty_sum = sum;
}

nccl_fault::~nccl_fault() {
  faulty_rank = -1;
}

}  // namespace troupe::test
