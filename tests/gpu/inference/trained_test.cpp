#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <future>
#include <iterator>

#include "gpu/device/stage_device.hpp"
#include "gpu/inference/inference_device.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/export.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

/// Bytes of the text that the shipped model was trained with, as tokens.
std::vector<std::uint32_t> founding_text(std::size_t first, std::size_t count) {
  std::ifstream in{shipped / "data/founding.txt", std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  std::vector<std::uint32_t> tokens;
  for (const char c : text.substr(first, count)) tokens.push_back(static_cast<unsigned char>(c));
  REQUIRE(tokens.size() == count);
  return tokens;
}

payload payload_of(std::span<const std::uint32_t> tokens) {
  const auto bytes = std::as_bytes(tokens);
  return payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
}

/// The mean of -log of the probability of each token but the first, by inference.
double mean_loss(const fs::path& folder, const std::vector<std::uint32_t>& tokens) {
  const auto m = loaded(read_inference_model(folder));
  auto spec = whole_model(m, pages_for(m.positions));
  spec.weights = folder;
  const auto device = loaded(make_cpu_inference_device(spec));
  const auto positions = static_cast<std::uint32_t>(tokens.size() - 1);
  CHECK(device->reserve(1, positions));
  const auto prefill =
      loaded(device->prefill(1, 0, payload_of(std::span{tokens}.first(positions))));
  const auto head = loaded(device->head(finish(*prefill)));
  const auto predicted = finish(*head);
  const auto* row = reinterpret_cast<const float*>(predicted.bytes().data());
  double sum = 0;
  for (std::size_t i = 1; i < tokens.size(); ++i, row += m.vocabulary) {
    double all = 0;
    for (std::uint32_t t = 0; t < m.vocabulary; ++t) all += std::exp(static_cast<double>(row[t]));
    sum += std::log(all) - static_cast<double>(row[tokens[i]]);
  }
  return sum / positions;
}

template <class What>
typename What::result run(stage_device& d, What what) {
  std::promise<expected<outcome>> done;
  d.submit({std::move(what)}, [&](expected<outcome> r) { done.set_value(std::move(r)); });
  return loaded(done.get_future().get()).template of<What>();
}

}  // namespace

TEST_CASE(
    "a model that was trained, saved and exported here has the trainer's loss when it serves") {
  const auto tokens = founding_text(0, 151);
  stage_spec s;
  s.model = {"small", "gpt", 32, 2, 4, 0, 0, 150, 256, true, {}};
  s.sublayers = 4;
  s.has_embedding = s.has_head = true;
  s.learning_rate = 3e-3;
  const auto trainer = loaded(make_cpu_device(s));
  const auto input = payload_of(std::span{tokens}.first(150)),
             targets = payload_of(std::span{tokens}.last(150));
  const auto forward = [&](bool keep) {
    return run(*trainer, operations::forward{0, keep, input, targets}).loss;
  };
  for (int i = 0; i < 20; ++i) {
    forward(true);
    run(*trainer, operations::backward{});
    run(*trainer, operations::update{});
  }
  const double loss = forward(false);
  CHECK(loss < 4.5);
  const auto saved = checkpoint_directory(fresh_path("trained"), 20);
  run(*trainer, operations::save{saved.string()});
  CHECK(write_index(saved, s.model, 20, {stage_file(s)}));
  const auto folder = fresh_path("served");
  loaded(export_model({saved, folder, {}, {}}));
  CHECK(mean_loss(folder, tokens) == Approx(loss).epsilon(1e-6));
}

TEST_CASE("the shipped model predicts the text that it was trained with") {
  const auto folder = shipped / "models/scribe";
  CHECK(mean_loss(folder, founding_text(20'000, 513)) < 1.3);
  // Not what it has never seen.
  auto backwards = founding_text(20'000, 513);
  std::reverse(backwards.begin(), backwards.end());
  CHECK(mean_loss(folder, backwards) > 2.5);
}
