#include "gpu/model/export.hpp"

#include <nlohmann/json.hpp>

#include "gpu/model/checkpoint.hpp"
#include "gpu/model/checkpoint_folders.hpp"
#include "gpu/model/checkpoint_retention.hpp"
#include "gpu/model/layer_export.hpp"
#include "gpu/model/tuning_export.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "text/json/json_file.hpp"
#include "text/tokens/byte_level.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

/// The model according to a checkpoint's index; nothing: it is missing or incomplete.
std::optional<troupe::model> model_of_checkpoint(const fs::path& directory) {
  constexpr std::size_t limit_bytes = 64u << 20;
  const auto read = read_json_file(directory / "model.safetensors.index.json", limit_bytes);
  if (!read) return {};
  const auto& index = *read;
  if (!index.contains("metadata") || !index["metadata"].contains("model")) return {};
  try {
    const auto& shape = index["metadata"]["model"];
    troupe::model m;
    m.name = shape.at("name").get<std::string>();
    m.family = shape.at("family").get<std::string>();
    m.hidden = shape.at("hidden").get<std::uint32_t>();
    m.layers = shape.at("layers").get<std::uint32_t>();
    m.heads = shape.at("heads").get<std::uint32_t>();
    m.intermediate = shape.at("intermediate").get<std::uint32_t>();
    m.sequence = shape.at("sequence").get<std::uint32_t>();
    m.vocabulary = shape.at("vocabulary").get<std::uint32_t>();
    m.tied_head = shape.at("tied_head").get<bool>();
    return m;
  } catch (const json::exception&) {
    return {};
  }
}

expected<void> write_json(const fs::path& file, const json& d) {
  return write_whole_file(file.string(), text_of(d));
}

/// Hugging Face's names of GPT-2's sizes.
json config_of(const troupe::model& m) {
  json d{{"architectures", {"GPT2LMHeadModel"}},
         {"model_type", "gpt2"},
         {"n_embd", m.hidden},
         {"n_layer", m.layers},
         {"n_head", m.heads},
         {"n_inner", inner_width(m)},
         {"n_positions", m.sequence},
         {"n_ctx", m.sequence},
         {"vocab_size", m.vocabulary},
         {"tie_word_embeddings", m.tied_head},
         {"activation_function", "gelu_new"},
         {"layer_norm_epsilon", 1e-5},
         {"torch_dtype", "float32"}};
  // GPT-2's last token begins and ends a text; a smaller vocabulary does not have it.
  constexpr std::uint32_t gpt2_vocabulary = 50257;
  const bool has_end = m.vocabulary >= gpt2_vocabulary;
  d["bos_token_id"] = d["eos_token_id"] = has_end ? json(gpt2_vocabulary - 1) : json();
  return d;
}

/// In the form of Hugging Face's tokenizers: a byte-level encoding without merges, whose token of a
/// byte is that byte's number.
json byte_tokenizer() {
  json vocabulary = json::object();
  for (int b = 0; b < 256; ++b) vocabulary[byte_level_character(static_cast<unsigned char>(b))] = b;
  const json byte_level{{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", std::move(vocabulary)},
            {"merges", json::array()}}}};
}

// A model of bytes has no vocabulary files, but readers of the format require a tokenizer.
expected<void> write_byte_tokenizer(const fs::path& to, const troupe::model& m) {
  if (auto ok = write_json(to / "tokenizer.json", byte_tokenizer()); !ok) return ok;
  return write_json(to / "tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                   {"clean_up_tokenization_spaces", false},
                                                   {"model_max_length", m.sequence}});
}

expected<void> copy_tokenizer(const export_wish& w, const troupe::model& m) {
  for (const auto* name : {"vocab.json", "merges.txt"}) {
    std::error_code error;
    fs::copy_file(w.tokenizer / name, w.to / name, fs::copy_options::overwrite_existing, error);
    if (error)
      return refuse(reason::kind::unavailable, "{}: cannot be copied: {}",
                    (w.tokenizer / name).string(), error.message());
  }
  return write_json(w.to / "tokenizer_config.json",
                    {{"tokenizer_class", "GPT2Tokenizer"}, {"model_max_length", m.sequence}});
}

// Existing models are never overwritten: the folder may be the source of other programs.
expected<void> make_target(const fs::path& to) {
  std::error_code error;
  for (const auto* name : {"config.json", exported_weights, exported_pt, "adapter_config.json"})
    if (fs::exists(to / name, error))
      return refuse(reason::kind::refused, "{}: already exists; use another directory",
                    (to / name).string());
  fs::create_directories(to, error);
  if (error)
    return refuse(reason::kind::invalid, "{}: cannot be made: {}", to.string(), error.message());
  return {};
}

expected<exported> export_program(const export_wish& w, const checkpoint& from) {
  const auto base = base_of(from);
  if (!base) return refuse(base.error());
  if (w.merged && !*base)
    return refuse(reason::kind::invalid,
                  "--merged: found a checkpoint of another program than a folder's fine-tuning");
  if (w.model || !w.tokenizer.empty())
    return refuse(reason::kind::invalid,
                  "found a program's checkpoint with a job or a tokenizer, which apply to the "
                  "built-in model only");
  if (auto ok = make_target(w.to); !ok) return refuse(ok.error());
  if (*base && w.form != export_form::pt) {
    const auto done = export_tuning({w.to, w.merged, w.all_f32, w.sha256_of}, from, **base);
    if (!done) return refuse(done.error());
    exported all{{}, from.iteration(), done->parameters, false, true};
    all.kind = done->kind;
    all.base = **base;
    all.rank = done->rank;
    return all;
  }
  const auto done = export_layers(from, w.to / exported_weights);
  if (!done) return refuse(done.error());
  return exported{{}, from.iteration(), done->parameters, false, true, done->frozen};
}

// The configuration is written last: without it, readers do not take a folder for a model.
expected<exported> export_built_in(const export_wish& w, const checkpoint& read,
                                   const fs::path& from) {
  if (w.form == export_form::pt)
    return refuse(reason::kind::invalid,
                  "found a checkpoint of the built-in model, expected a program's for format pt");
  const auto model = w.model ? w.model : model_of_checkpoint(from);
  if (!model)
    return refuse(reason::kind::unknown, "{} does not record its model; give its job with --job",
                  from.string());
  auto ok = make_target(w.to);
  if (ok) ok = export_weights(from, *model, w.to / exported_weights);
  // A vocabulary of 256 without files is of bytes.
  const bool of_bytes = w.tokenizer.empty() && model->vocabulary == 256;
  if (ok && of_bytes) ok = write_byte_tokenizer(w.to, *model);
  if (ok && !w.tokenizer.empty()) ok = copy_tokenizer(w, *model);
  if (ok) ok = write_json(w.to / "config.json", config_of(*model));
  if (!ok) return refuse(ok.error());
  exported done{{}, read.iteration(), 0, of_bytes};
  for (const auto& p : parameters_of(*model)) done.parameters += p.values();
  return done;
}

/// The folder of the newest checkpoint, or of the best; else the one that was given.
expected<fs::path> checkpoint_of(const export_wish& w) {
  const auto newest = newest_checkpoint(w.checkpoint);
  if (!w.best) return newest ? newest->directory : w.checkpoint;
  const auto best = read_best(w.checkpoint);
  if (!best) return refuse(best.error());
  if (!*best)
    return refuse(reason::kind::invalid,
                  "{}: found no best.json, expected the checkpoints of a training that evaluates",
                  w.checkpoint.string());
  return checkpoint_directory(w.checkpoint, (*best)->iteration);
}

}  // namespace

expected<exported> export_model(const export_wish& w) {
  const auto chosen = checkpoint_of(w);
  if (!chosen) return refuse(chosen.error());
  const auto& from = *chosen;
  const auto read = checkpoint::open(from);
  if (!read) return refuse(read.error());
  auto done = is_of_program(*read) ? export_program(w, *read) : export_built_in(w, *read, from);
  if (done) done->from = from;
  return done;
}

}  // namespace troupe::gpu
