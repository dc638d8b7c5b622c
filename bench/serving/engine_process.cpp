#include "serving/engine_process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <fmt/format.h>

#include "harness/clock.hpp"

namespace troupe::bench {

namespace {

struct order {
  char what = 0;
  std::size_t tokens = 0;
};

[[noreturn]] void serve(const gpu::inference_spec& s, int in, int out) {
  engine own{s};
  order o;
  while (::read(in, &o, sizeof o) == sizeof o) {
    if (o.what == 'p')
      own.prefill(prompt_of(o.tokens, s.model.vocabulary, 1));
    else
      own.decode(o.tokens);
    if (::write(out, &o.what, 1) != 1) break;
  }
  ::_exit(0);
}

double together(const std::vector<engine_process*>& all, void (engine_process::*begin)(std::size_t),
                std::size_t tokens) {
  const double begin_s = clock_s(CLOCK_MONOTONIC);
  for (auto* p : all) (p->*begin)(tokens);
  for (auto* p : all) p->finish();
  return clock_s(CLOCK_MONOTONIC) - begin_s;
}

}  // namespace

engine_process::engine_process(const gpu::inference_spec& s) {
  int in[2], out[2];
  if (::pipe(in) != 0 || ::pipe(out) != 0) std::exit(2);
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(in[1]);
    ::close(out[0]);
    serve(s, in[0], out[1]);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
}

// A later process has the earlier one's pipe, too, so that closing it is not enough.
engine_process::~engine_process() {
  ::close(to_);
  ::close(from_);
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
}

void engine_process::send(char what, std::size_t tokens) {
  const order o{what, tokens};
  if (::write(to_, &o, sizeof o) != sizeof o) std::exit(2);
}

void engine_process::finish() {
  char what = 0;
  if (::read(from_, &what, 1) == 1) return;
  fmt::print(stderr, "an engine's process has ended\n");
  std::exit(2);
}

double prefill_together(const std::vector<engine_process*>& all, std::size_t tokens) {
  return together(all, &engine_process::begin_prefill, tokens);
}

double decode_together(const std::vector<engine_process*>& all, std::size_t tokens) {
  return together(all, &engine_process::begin_decode, tokens);
}

}  // namespace troupe::bench
