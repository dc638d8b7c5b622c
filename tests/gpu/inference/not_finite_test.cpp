#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <map>

#include "gpu/inference/batch_queue.hpp"
#include "gpu/inference/generate.hpp"
#include "gpu/inference/model_folder.hpp"
#include "harness/files.hpp"
#include "harness/stored_values.hpp"

// Weights and logits that are NaN or infinite.

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

constexpr std::uint32_t vocabulary = 96, overflows_at = 40;
constexpr float large = 3e38f;  // finite, but not the sum of two

expected<std::unique_ptr<inference_device>> device_of(const std::filesystem::path& folder) {
  auto spec = whole_model(loaded(read_inference_model(folder)), 16);
  spec.weights = folder;
  return make_cpu_inference_device(spec);
}

/// A model that overflows at positions from `overflows_at` on.
std::unique_ptr<inference_device> overflowing() {
  const auto kind = small_model_named("gpt2");
  const auto folder = model_folder("overflowing", kind.config);
  const std::size_t hidden = 48, positions = 448;
  overwrite_values(folder / "model.safetensors", "wpe.weight", overflows_at * hidden,
                   (positions - overflows_at) * hidden, large);
  return loaded(device_of(folder));
}

generation asked(std::size_t prompt, std::uint32_t max_tokens) {
  generation g;
  g.prompt = random_prompt(prompt, vocabulary, 1);
  g.what.prompt_tokens = static_cast<std::uint32_t>(prompt);
  g.what.max_tokens = max_tokens;
  return g;
}

}  // namespace

TEST_CASE("a weight that is not finite is refused with its tensor and file") {
  for (const auto* name : {"llama", "gpt2"}) {
    const bool gpt2 = name == std::string{"gpt2"};
    // One tensor that is read as it is stored, and one that is turned or joined with others.
    for (const std::string tensor :
         {gpt2 ? "ln_f.weight" : "model.norm.weight",
          gpt2 ? "h.1.attn.c_attn.weight" : "model.layers.1.self_attn.k_proj.weight"})
      for (const float wrong :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const auto folder = model_folder("not-finite", small_model_named(name).config);
        REQUIRE(device_of(folder));
        const auto file = folder / "model.safetensors";
        overwrite_values(file, tensor, 5, 1, wrong);
        const auto d = device_of(folder);
        REQUIRE_FALSE(d);
        CHECK(d.error().text == file.string() + ": '" + tensor + "': found " +
                                    (std::isnan(wrong) ? "nan" : "inf") +
                                    " at value 5, expected finite numbers");
      }
  }
}

TEST_CASE("a completion whose logits are not finite ends with an error that names the position") {
  const auto device = overflowing();
  const auto run = [&](const generation& g) {
    completion out{g.what, {}, nullptr};
    const auto made = generate(*device, g, out);
    return std::pair{out.tokens().size(), made ? std::string{} : made.error().text};
  };
  CHECK(run(asked(30, 11)).second == "");  // the last token is not fed
  const auto [tokens, why] = run(asked(30, 12));
  CHECK(tokens == 11);
  CHECK_THAT(why, Contains("position 41: the model's logit of token 0 is ") &&
                      Contains(", expected finite numbers"));
  CHECK_THAT(run(asked(60, 3)).second, Contains("position 60: the model's logit of token 0 is "));
}

TEST_CASE("of a batch, only the sequences whose logits are not finite fail") {
  const auto device = overflowing();
  std::map<sequence_id, std::vector<std::uint32_t>> tokens;
  std::map<sequence_id, reason> failed;
  batch_queue queue{{}, device->free_pages()};
  const std::map<sequence_id, std::pair<std::size_t, std::uint32_t>> all{
      {1, {20, 12}}, {2, {60, 5}}, {3, {35, 12}}, {4, {10, 30}}};
  for (const auto& [id, lengths] : all) {
    const auto g = asked(lengths.first, lengths.second);
    queue.add({id, g.what, g.prompt, {}});
  }
  queue.admit();
  for (int rounds = 0; !queue.idle() && rounds < 100; ++rounds)
    execute(*device, queue.next(), [&](const batch_result& r) {
      if (r.failed) {
        failed[r.sequence] = *r.failed;
        return queue.end(r.sequence);
      }
      queue.took(r.sequence, r.next->chosen.token);
      tokens[r.sequence].push_back(r.next->chosen.token);
      if (tokens[r.sequence].size() == all.at(r.sequence).second) queue.end(r.sequence);
    });
  CHECK(queue.idle());
  REQUIRE(failed.size() == 2);
  CHECK_THAT(failed[2].text, Contains("position 60: "));
  CHECK_THAT(failed[3].text, Contains("position 41: "));
  CHECK(failed[3].code == reason::kind::infeasible);
  CHECK(tokens[2].empty());
  for (const sequence_id id : {1, 4}) {
    const auto g = asked(all.at(id).first, all.at(id).second);
    completion alone{g.what, {}, nullptr};
    REQUIRE(generate(*device, g, alone));
    CHECK(tokens[id] == alone.tokens());
  }
}

TEST_CASE("one logit that is not finite is enough, wherever it is") {
  std::vector<float> logits(500, -1.0f);
  CHECK(check_logits(logits, 3));
  for (const std::size_t at : {0, 250, 499})
    for (const float wrong :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      auto bad = logits;
      bad[at] = wrong;
      const auto ok = check_logits(bad, 3);
      REQUIRE_FALSE(ok);
      const std::string found = std::isnan(wrong) ? "nan" : wrong > 0 ? "inf" : "-inf";
      CHECK(ok.error().text == "position 3: the model's logit of token " + std::to_string(at) +
                                   " is " + found + ", expected finite numbers");
    }
}
