#include "serving/two_threads.hpp"

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "harness/foreign_load.hpp"
#include "serving/engine_process.hpp"
#include "serving/gguf.hpp"
#include "serving/llama.hpp"

namespace troupe::bench {

namespace {

constexpr std::uint64_t seed = 7;
constexpr std::size_t prompt_tokens = 512, new_tokens = 32;
constexpr std::uint32_t threads = 2;

/// Seconds of each round.
struct times {
  std::vector<double> threads, processes, llama;
};

std::vector<double> ratios(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> all;
  for (std::size_t i = 0; i < of.size(); ++i) all.push_back(of[i] / to[i]);
  return all;
}

/// Two processes compute twice as many tokens in their time.
void print(const char* model, const char* what, double tokens, const times& t, double wanted) {
  constexpr double wanted_of_processes = 0.8;
  const double of_processes = median(ratios(t.processes, t.threads)) / threads;
  fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.2f} | {} | {} |", model, what,
             tokens / median(t.threads), threads * tokens / median(t.processes), of_processes,
             wanted_of_processes, of_processes >= wanted_of_processes ? "yes" : "**no**");
  if (t.llama.empty()) return fmt::print(" | | {} | |\n", wanted);
  const double of_llama = median(ratios(t.llama, t.threads));
  fmt::print(" {:.0f} | {:.2f} | {} | {} |\n", tokens / median(t.llama), of_llama, wanted,
             of_llama >= wanted ? "yes" : "**no**");
}

void one_model(const gpu::inference_model& m, const std::optional<std::string>& modules,
               const scratch& in, int rounds) {
  auto spec = gpu::whole_model(m, gpu::pages_for(m.positions));
  spec.seed = seed;
  engine_process first{spec}, second{spec};
  const std::vector<engine_process*> both{&first, &second};
  spec.threads = threads;
  engine own{spec};
  std::optional<llama_peer> peer;
  const auto file = in.path("model.gguf");
  if (modules) {
    write_gguf(file, m, seed);
    peer.emplace(*modules, file, threads);
  }
  const auto prompt = prompt_of(prompt_tokens, m.vocabulary, 1);
  times prefill, decode;
  for (int round = 0; round <= rounds; ++round) {
    const bool counts = round > 0;  // the first warms up
    const auto add = [&](std::vector<double>& to, double s) {
      if (counts) to.push_back(s);
    };
    add(prefill.threads, own.prefill(prompt));
    add(decode.threads, own.decode(new_tokens).s);
    add(prefill.processes, prefill_together(both, prompt_tokens));
    add(decode.processes, decode_together(both, new_tokens));
    if (!peer) continue;
    add(prefill.llama, peer->prefill(prompt));
    add(decode.llama, peer->decode(new_tokens).s);
  }
  print(m.name.c_str(), "prefill", prompt_tokens, prefill, 1.8);
  print("", "decode", new_tokens, decode, 1.0);
  std::filesystem::remove(file);
}

}  // namespace

void two_threads(const std::vector<gpu::inference_model>& models,
                 const std::optional<std::string>& modules, const scratch& in, int rounds) {
  const foreign_load load;
  fmt::print(
      "\n| two threads | | tokens/s | two processes of one thread, tokens/s | ratio | wanted | | "
      "llama.cpp with two threads, tokens/s | ratio | wanted | "
      "|\n|---|---|---:|---:|---:|---:|---|---:|---:|---:|---|\n");
  for (const auto& m : models) one_model(m, modules, in, rounds);
  fmt::print("\nForeign load: {:.0f} % of the processors.\n", load.percent());
}

}  // namespace troupe::bench
