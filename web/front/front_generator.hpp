#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/serving/front/completions.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "text/tokens/tokenizer.hpp"
#include "web/openai/generator.hpp"

namespace troupe::web {

/// Completes prompts of one model by the decoders of a cluster. Text and stop texts are made here,
/// of the tokens that the front receives.
class front_generator final : public generator {
 public:
  /// c: the host's, whose numbers decoders have. words: null: tokens without text.
  front_generator(actors::completions front, shared_cluster c, std::string model,
                  std::shared_ptr<const gpu::tokenizer> words);
  ~front_generator() override;

  expected<std::vector<std::uint64_t>> submit(std::vector<submission> all) override;
  void cancel(const std::vector<std::uint64_t>& sequences) override;
  generator_state state() const override;

 private:
  class sequence;
  struct lifetime;

  expected<void> check(const std::vector<submission>& all) const;
  std::uint64_t begin(submission s);

  const actors::completions front_;
  const shared_cluster cluster_;
  const std::string model_;
  const std::shared_ptr<const gpu::tokenizer> words_;
  const std::shared_ptr<lifetime> lifetime_;  // shared with listeners, which may outlive this
};

}  // namespace troupe::web
