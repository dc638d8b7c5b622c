#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Fine-tuning of a model folder: the keys that a job's `train:` has with `base`. They travel as
/// the arguments of a program without a file, which is the package's own.
struct tuning {
  std::string base;        // the folder, the same path and content on every node
  std::uint64_t hash = 0;  // hash_of_model_files() when the job was read
  std::string initial;     // `random`: weights of the seed, not the folder's
  // Examples, and how they become rows (messages/admission/example_settings.hpp).
  std::string data;            // a file of them, the same on every node
  std::uint32_t sequence = 0;  // tokens of a row at most; 0: by the model
  bool packing = false;
  std::string train_on;              // answers, all; empty: as usual for the form of the examples
  std::string too_long = "refuse";   // refuse, drop, cut
  std::string date;                  // that templates write
  std::string eval_data;             // a file of held-out examples
  double held_out = 0;               // without such a file: their share of the data's lines
  std::uint32_t evaluate_every = 0;  // updates between evaluations; 0: after the last one alone
  double epochs = 3;                 // if the job has no iterations
  // Counted when the job was read.
  std::uint64_t rows = 0, trained_tokens = 0, held_out_rows = 0;
  // Rates, from the first update to the job's last.
  double learning_rate = 0, weight_decay = 0;
  double warmup = 0.03;          // share of the updates in which the rate rises
  std::string decay = "cosine";  // cosine, linear, constant
  double final_rate = 0;         // that one more update would have
  double clip = 1;               // norm of the gradients at most; 0: any
  double beta_1 = 0.9, beta_2 = 0.999;
  std::string precision = "fp32";
  std::uint32_t frozen_layers = 0;  // the first ones, the embedding included, are not trained
  // An adapter, beside which no weight of the base is trained; rank 0: none.
  std::uint32_t adapter_rank = 0;
  double adapter_alpha = 32;            // the product counts alpha / rank
  std::string adapter_targets = "all";  // all, attention, or names of modules with commas
  bool adapter_rslora = false;          // alpha / sqrt(rank)

  bool has_held_out() const { return held_out > 0 || !eval_data.empty(); }
};

}  // namespace troupe
