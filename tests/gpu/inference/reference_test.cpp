#include <sys/wait.h>
#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gpu/inference/generate.hpp"
#include "gpu/inference/model_folder.hpp"
#include "gpu/model/safetensors.hpp"
#include "harness/files.hpp"
#include "harness/source_dir.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

/// A Python with PyTorch; empty: there is none.
std::string python_with_torch() {
  for (const std::string python : {"python3", "/usr/bin/python3"})
    if (std::system((python + " -c 'import torch' >/dev/null 2>&1").c_str()) == 0) return python;
  return {};
}

/// A prompt and its completion, and the file with their logits.
struct computed {
  std::filesystem::path folder, logits;
  std::string tokens;  // with commas
};

computed compute(const model_kind& kind) {
  const auto folder = model_folder(kind);
  const auto m = loaded(read_inference_model(folder));
  auto spec = whole_model(m, 8);
  spec.weights = folder;
  const auto device = loaded(make_cpu_inference_device(spec));
  generation g;
  g.prompt = random_prompt(150, m.vocabulary, 3);
  g.what.prompt_tokens = static_cast<std::uint32_t>(g.prompt.size());
  g.what.max_tokens = 64;
  g.keep_logits = true;
  completion out{g.what, {}, nullptr};
  const auto made = loaded(generate(*device, g, out));
  const auto file = folder / "logits";
  const auto positions = made.logits.size() / m.vocabulary;
  CHECK(write_safetensors(file, {{"logits", {positions, m.vocabulary}, made.logits}}, {}));
  auto tokens = g.prompt;
  tokens.insert(tokens.end(), out.tokens().begin(), out.tokens().end());
  CHECK(positions == tokens.size() - 1);
  return {folder, file, fmt::format("{}", fmt::join(tokens, ","))};
}

}  // namespace

TEST_CASE("logits of every kind of model are PyTorch's, and so are 64 tokens") {
  const auto python = python_with_torch();
  if (python.empty()) {
    WARN("not compared: there is no Python with PyTorch (Debian's python3-torch)");
    return;
  }
  auto command =
      fmt::format("{} {}/tests/gpu/inference/reference.py", python, troupe::test::source_dir());
  for (const auto& kind : small_models()) {
    const auto c = compute(kind);
    command += fmt::format(" {} {} {}", c.folder.string(), c.logits.string(), c.tokens);
  }
  const auto out = temporary_folder() / "reference.json";
  REQUIRE(std::system((command + " >" + out.string()).c_str()) == 0);
  std::ifstream in{out};
  for (const auto& kind : small_models()) {
    std::string line;
    REQUIRE(std::getline(in, line));
    INFO(kind.name << ": " << line);
    const auto said = nlohmann::json::parse(line);
    CHECK(said.at("positions") == 150 + 64 - 1);
    CHECK(said.at("difference").get<double>() < 1e-5 * said.at("largest").get<double>());
    CHECK(said.at("clear").get<int>() > 180);
    CHECK(said.at("wrong") == 0);
  }
}
