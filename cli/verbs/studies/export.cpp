#include <filesystem>
#include <string>

#include "cli/programs/python_module.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "gpu/files/sha256.hpp"
#include "gpu/model/export.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// In place of model.safetensors, which is there: only Python writes pickles.
expected<void> convert_to_pt(const fs::path& folder, const std::string& python) {
  const auto weights = folder / gpu::exported_weights;
  const auto ended = run_python_module(
      "troupe.export_pt", python, {weights.string(), (folder / gpu::exported_pt).string()}, ".");
  std::error_code ignored;
  fs::remove(weights, ignored);
  if (!ended) return refuse(ended.error());
  if (ended->status == 0) return {};
  return refuse(reason::kind::invalid, "format pt: {}", ended->last_line);
}

/// A training's checkpoint as a Hugging Face model folder, which `troupe serve` and other programs
/// read; a program's as the weights of its layers.
class export_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("CHECKPOINT", checkpoint_,
                   "A job's `checkpoint:` directory (the newest checkpoint is used), or one "
                   "checkpoint in it")
        ->required();
    app.add_option("DIR", to_, "Folder to create")->required();
    app.add_option(
        "--job", job_,
        "Job file, for a checkpoint that does not record its model, and for the job's tokenizer");
    app.add_option("--tokenizer", tokenizer_,
                   "Folder with vocab.json and merges.txt, if the text was tokenized with them");
    app.add_option("--format", form_,
                   "Of a program's weights: safetensors (default), or pt for torch.load, which "
                   "needs PyTorch")
        ->check(CLI::IsMember({"safetensors", "pt"}));
    app.add_flag("--merged", merged_, "An adapter with its base: a folder of all weights");
    app.add_flag("--best", best_,
                 "Export the checkpoint with the lowest held-out loss, not the newest");
    app.add_option("--dtype", dtype_,
                   "Of a fine-tuned folder's weights: base (default), as its base has them, or f32")
        ->check(CLI::IsMember({"base", "f32"}));
    app.add_option("--python", python_,
                   "Python interpreter for --format pt (default: $TROUPE_PYTHON, else python3)");
    app.footer(
        "GPT2LMHeadModel.from_pretrained of Python's transformers reads the folder. A program's is "
        "read by nn.Sequential(*layers).load_state_dict or troupe.load. A training with base gives "
        "a model folder, or an adapter in PEFT's format.");
  }

  int run(output& out) override {
    const auto form = as_pt() ? gpu::export_form::pt : gpu::export_form::safetensors;
    gpu::export_wish wish{checkpoint_, to_, {}, tokenizer_, form};
    wish.merged = merged_;
    wish.best = best_;
    wish.all_f32 = dtype_ == "f32";
    wish.sha256_of = gpu::sha256_of_weights;
    if (!job_.empty()) {
      auto job = formats::load_job(job_);
      if (!job) return out.bad(job.error());
      wish.model = job->model;
      // The job's own tokenizer is right unless the user has moved it.
      if (tokenizer_.empty() && job->train) wish.tokenizer = job->train->vocabulary;
    }
    // The checkpoint has the weights of all stages, however many: the folder has one model.
    const auto done = gpu::export_model(wish);
    if (!done)
      return done.error().code == reason::kind::invalid ? out.bad(done.error())
                                                        : out.failure(done.error());
    if (as_pt())
      if (auto ok = convert_to_pt(to_, python_); !ok) return out.bad(ok.error());
    json d{{"directory", to_},
           {"checkpoint", done->from.string()},
           {"iteration", done->iteration},
           {"parameters", done->parameters}};
    if (!done->kind.empty())
      show_folder(*done, out, d);
    else
      done->of_program ? show_program(*done, out, d) : show_built_in(*done, wish, out, d);
    return exit_done;
  }

 private:
  void show_built_in(const gpu::exported& done, const gpu::export_wish& wish, output& out,
                     json& d) const {
    d["tokenizer"] = done.of_bytes            ? json("bytes")
                     : wish.tokenizer.empty() ? json()
                                              : json(wish.tokenizer.string());
    out.document(d);
    out.line("{}: config.json and model.safetensors, {} parameters after {} iterations", to_,
             done.parameters, done.iteration);
    if (done.of_bytes)
      out.line("tokenizer.json: each byte is a token");
    else if (wish.tokenizer.empty())
      out.line("no tokenizer: give --tokenizer or --job for that of the training's text");
  }

  void show_folder(const gpu::exported& done, output& out, json& d) const {
    d["kind"] = done.kind;
    d["base"] = done.base;
    d["rank"] = done.rank > 0 ? json(done.rank) : json();
    out.document(d);
    out.line("{}: {} of {}, {} parameters after {} iterations", to_,
             done.kind == "adapter" ? "adapter_model.safetensors, an adapter" : "a model folder",
             done.base, done.parameters, done.iteration);
  }

  void show_program(const gpu::exported& done, output& out, json& d) const {
    const auto* file = as_pt() ? gpu::exported_pt : gpu::exported_weights;
    d["file"] = (fs::path{to_} / file).string();
    d["frozen"] = done.frozen;
    out.document(d);
    out.line("{}: {}, {} parameters after {} iterations", to_, file, done.parameters,
             done.iteration);
    if (done.frozen > 0)
      out.line("without {} frozen parameters, which are in folders of their own", done.frozen);
  }

  bool as_pt() const { return form_ == "pt"; }

  bool merged_ = false, best_ = false;
  std::string dtype_ = "base";
  std::string checkpoint_, to_, job_, tokenizer_, python_, form_ = "safetensors";
};

}  // namespace

std::unique_ptr<verb> make_export() {
  return std::make_unique<export_verb>();
}

}  // namespace troupe::cli
